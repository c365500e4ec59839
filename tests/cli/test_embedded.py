#!/usr/bin/env python3
"""The real program on the embedded model: what `run`, `tokenize`, `inspect` and `quantize` promise at the command line.

usage: test_embedded.py PROGRAM SOURCE_ROOT"""
import hashlib, json, os, re, struct, subprocess, sys, tempfile, unittest

PROGRAM = ROOT = None
IDS = '414,2909,7'  # "int main("


def environment(extra):
    e = {k: v for k, v in os.environ.items() if not k.startswith('VERBATIM_')}
    e.update(extra or {})
    return e


class Embedded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.dir = cls.tmp.name
        cls.env = {'VERBATIM_HOME': cls.dir}

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def call(self, *args, code=0, input='', env=None):
        p = subprocess.run([PROGRAM, *args], input=input.encode(), capture_output=True, cwd=self.dir, timeout=240,
                           env=environment({**self.env, **(env or {})}))
        out, err = p.stdout.decode(), p.stderr.decode()
        self.assertEqual(p.returncode, code, ' '.join(args) + '\n' + out + err)
        if code:
            self.assertRegex(err, r'(?m)^verbatim: error: [^\n]+\n\Z')
            self.assertEqual(out, '')
        return out, err

    def json(self, *args, **k):
        out = self.call(*args, '--json', **k)[0]
        return json.loads(out)

    def tensor(self, name):
        with open(os.path.join(self.dir, name), 'rb') as f: b = f.read()
        n = struct.unpack('<Q', b[:8])[0]
        return json.loads(b[8:8 + n])['logits']['shape'], b[8 + n:]

    def without_tokenizer(self):
        bare = os.path.join(self.dir, 'bare')
        os.makedirs(bare, exist_ok=True)
        for f in os.listdir(os.path.join(ROOT, 'models', 'atto')):
            if 'tokenizer' in f or 'chat' in f or os.path.lexists(os.path.join(bare, f)): continue
            os.symlink(os.path.join(ROOT, 'models', 'atto', f), os.path.join(bare, f))
        return bare

    def test_one_hash(self):
        want = self.json('run', '--ids', IDS, '-n', '12', '--greedy', '--ignore-eos', '--draft', 'none', '--logits-out', 'a')
        shape, data = self.tensor('a')
        self.assertEqual(shape[0], len(want['token_ids']))
        self.assertEqual(hashlib.sha256(data).hexdigest(), want['logits_sha256'])
        self.assertEqual((len(want['token_ids']), want['finish_reason'], want['draft']['kind']), (12, 'length', 'none'))
        # the tokens are the argmax of their rows, ties to the lower id
        for i, t in enumerate(want['token_ids']):
            row = struct.unpack_from('<%df' % shape[1], data, 4 * shape[1] * i)
            self.assertEqual(t, row.index(max(row)))
        for extra in (['--threads', '1'], ['--threads', '3'], ['--prefill-chunk', '1'], ['--neighbours', '3'], ['--no-head-chunk'],
                      ['--draft', 'lookup', '--draft-width', '4'], ['--draft', 'mtp', '--draft-width', '3'], ['--ctx', '64']):
            got = self.json('run', '--ids', IDS, '-n', '12', '--greedy', '--ignore-eos', *extra)
            self.assertEqual((got['logits_sha256'], got['token_ids']), (want['logits_sha256'], want['token_ids']), extra)
        # --verbose says the accept lengths of all rounds, as --accepts takes them
        said = lambda *a: re.findall(r'debug: draft: kind=\w+ rounds=(\S+) accepts=(\S+)', self.call('run', '-v', '--ids', IDS, '--greedy', '--ignore-eos', *a)[1])
        rounds, accepts = said('-n', '12', '--accepts', '1,3,2')[-1]
        self.assertEqual((rounds, accepts[:6]), ('1..%d' % (accepts.count(',') + 1), '1,3,2,'))
        self.assertEqual([r for r, a in said('-n', '80', '--draft', 'none')], ['1..64', '65..79'])
        # a drafter asked for by name is named, also where it drafts nothing
        for kind in ('lookup', 'mtp'):
            got = self.json('run', '--ids', '5,9,2', '-n', '2', '--greedy', '--draft', kind, '--draft-width', '1')['draft']
            self.assertEqual((got['kind'], got['proposed']), (kind, 0))
        got = self.json('run', '--ids', IDS, '-n', '12', '--greedy', '--ignore-eos', env={'VERBATIM_CPU': 'c'})
        self.assertEqual((got['logits_sha256'], got['numerics']['level']), (want['logits_sha256'], 'c'))
        self.call('run', '--ids', IDS, '-n', '4', '--greedy', '--ignore-eos', '--all-logits', '--logits-out', 'b')
        shape, rows = self.tensor('b')
        self.assertEqual(shape[0], 3 + 4 - 1)
        row = 4 * shape[1]
        self.assertEqual(rows[2 * row:], data[:4 * row])
        self.call('run', '--ids', IDS, '-n', '0', '--all-logits', '--logits-out', 'b')
        self.assertEqual(self.tensor('b')[0][0], 3)
        self.assertEqual(self.tensor('b')[1], rows[:3 * row])

    def test_sampling(self):
        a = self.json('run', '--ids', IDS, '-n', '16', '--temp', '1', '--seed', '7', '--ignore-eos')
        b = self.json('run', '--ids', IDS, '-n', '16', '--temp', '1', '--seed', '7', '--ignore-eos', '--draft', 'lookup', '--threads', '1')
        c = self.json('run', '--ids', IDS, '-n', '16', '--temp', '1', '--ignore-eos')
        self.assertEqual((a['token_ids'], a['logits_sha256'], a['seed']), (b['token_ids'], b['logits_sha256'], 7))
        self.assertNotEqual(a['token_ids'], c['token_ids'])
        again = self.json('run', '--ids', IDS, '-n', '16', '--temp', '1', '--ignore-eos', '--seed', str(c['seed']))
        self.assertEqual(again['token_ids'], c['token_ids'])
        o = self.json('run', '--ids', IDS, '-n', '2', '--greedy', '--top-logprobs', '3')['logprobs']
        self.assertEqual([x['top'][0]['id'] for x in o], [x['id'] for x in o])
        self.assertEqual(len(o[0]['top']), 3)

    def test_text(self):
        ids = self.call('tokenize', 'int main(')[0]
        self.assertEqual(ids.split(), IDS.split(','))
        self.assertEqual(self.call('tokenize', '--decode', IDS)[0], 'int main(\n')
        raw = self.json('run', '--raw', 'int main(', '-n', '4', '--greedy')
        self.assertEqual(raw['prompt_token_ids'], [int(i) for i in IDS.split(',')])
        end = raw['token_ids'] if raw['finish_reason'] == 'length' else raw['token_ids'][:-1]
        if end: self.assertEqual(self.call('tokenize', '--decode', ','.join(map(str, end)))[0], raw['text'] + '\n')
        lines = self.call('tokenize', '--stdin-jsonl', input='{"text": "<|im_end|>"}\n{"text": "<|im_end|>", "parse_special": false}\n{}\n{"text": "a"}\n')[0]
        lines = [json.loads(l) for l in lines.splitlines()]
        self.assertEqual([len(lines[0]['ids']), list(lines[2]), len(lines[3]['ids'])], [1, ['error'], 1])
        self.assertGreater(len(lines[1]['ids']), 1)

    def test_chat(self):
        o = self.json('run', 'Count from one to ten.', '--greedy')
        self.assertEqual((o['finish_reason'], o['token_ids'][-1]), ('stop', 16376))
        self.assertIn('ten', o['text'])
        # a user cannot write a control token
        o = self.json('run', 'a<|im_end|>b', '-n', '1', '--greedy')
        raw = self.json('run', '--raw', 'a<|im_end|>b', '-n', '1', '--greedy')
        self.assertEqual(raw['prompt_token_ids'].count(16376), 1)
        self.assertEqual(o['prompt_token_ids'].count(16376), 1)
        with open(os.path.join(self.dir, 't'), 'w') as f: f.write('{{ messages[0].content }}!')
        o = self.json('run', '--chat-template', 't', 'int main(', '-n', '1', '--greedy')
        self.assertEqual(o['prompt_token_ids'][:2], [414, 2909])
        self.call('run', 'x', '--chat-template', 'none', '-n', '1', code=3)
        turns = self.call('chat', '--greedy', '-n', '8', input='Count from one to three.\nAnd to four?\n')[0]
        self.assertGreaterEqual(turns.count('\n\n'), 2)
        self.assertIn('tokenizer.json', self.call('run', '-m', self.without_tokenizer(), 'x', code=3)[1])
        with open(os.path.join(self.dir, 'm.json'), 'w') as f: json.dump([{'role': 'user', 'content': 'hello'}], f)
        self.assertIn('hello', self.call('template', '--messages', 'm.json')[0])

    def test_errors(self):
        self.call('run', '--ids', '99999', code=2)
        self.call('run', '--ids', IDS, '-m', os.path.join(self.dir, 'none'), code=3)
        self.call('run', '--ids', IDS, '-m', self.dir, code=3)
        self.call('run', '--ids', IDS, '--ctx', '2', code=4)
        self.call('run', '--ids', IDS, '-n', '1', env={'VERBATIM_CPU': 'z80'}, code=2)
        self.call('run', '--ids', IDS, '--draft', 'magic', '-n', '1', code=2)
        self.call('run', '--ids', IDS, '--temp', '0.5', '--repeat-penalty', '0', '-n', '1', code=2)
        self.assertIn("unknown 'dflash:'", self.call('run', '--ids', IDS, '--draft', 'dflash:', '-n', '1', code=2)[1])
        self.assertIn('is not a regular file', self.call('replay', '/dev/zero', code=3)[1])
        self.assertIn('No such file', self.call('replay', 'none', code=3)[1])
        # a home that cannot be written is said once at most (a slow machine has no time for the gate), and costs nothing else
        err = self.call('run', '--ids', IDS, '-n', '12', '--greedy', '--ignore-eos', env={'VERBATIM_HOME': '/dev/null/x'})[1]
        self.assertLessEqual(err.count('memo not written'), 1)
        # no tokenizer: ids work, text names the file that is missing
        bare = self.without_tokenizer()
        got = self.json('run', '-m', bare, '--ids', IDS, '-n', '2', '--greedy')
        self.assertEqual((got['text'], len(got['token_ids'])), ('', 2))
        self.assertIn('tokenizer.json', self.call('run', '-m', bare, '--raw', 'x', code=3)[1])

    def test_inspect(self):
        o = self.json('inspect')
        self.assertEqual(o['architecture'], 'qwen3_5')
        small, large = self.json('inspect', '--ctx', '100'), self.json('inspect', '--ctx', '2000')
        self.assertLess(small['context_bytes'], large['context_bytes'])
        self.assertIn('architecture: qwen3_5\n', self.call('inspect')[0])


if __name__ == '__main__':
    PROGRAM, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    del sys.argv[1:3]
    unittest.main(verbosity=1)
