#!/usr/bin/env python3
"""verify, --trace, replay, --accepts and tune of the real program on the embedded model: what they prove, what they catch, and
what they say of files that somebody else wrote.

usage: test_proofs.py PROGRAM SOURCE_ROOT"""
import json, os, resource, shutil, subprocess, sys, tempfile, unittest

PROGRAM = ROOT = None
CHAT = 'Count from one to ten.'


class Proofs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.dir = cls.tmp.name

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def both(self, *args, code=0, env=None, **more):
        e = {k: v for k, v in os.environ.items() if not k.startswith('VERBATIM_')}
        e.update({'VERBATIM_HOME': self.dir, **(env or {})})
        p = subprocess.run([PROGRAM, *args], capture_output=True, text=True, env=e, timeout=280, **{'cwd': self.dir, **more})
        self.assertEqual(p.returncode, code, repr(args) + '\n' + p.stdout + p.stderr)
        return p.stdout, p.stderr

    def call(self, *args, code=0, **more):
        return self.both(*args, code=code, **more)[code >= 2]

    def file(self, name, text):
        with open(os.path.join(self.dir, name), 'wb') as f: f.write(text if isinstance(text, bytes) else text.encode())
        return name

    def trace(self, name, *args):
        path = os.path.join(self.dir, name)
        if os.path.exists(path): os.remove(path)
        answer = json.loads(self.call('run', *([] if '--prompt-file' in args else [CHAT]), *([] if '--temp' in args else ['--greedy']), '--trace', name, '--json', *args))
        with open(path) as f: return answer, [json.loads(line) for line in f]

    def edited(self, lines):
        with open(os.path.join(self.dir, 'edited'), 'w') as f: f.writelines(json.dumps(l) + '\n' for l in lines)
        return 'edited'

    def test_accept_counts_add_up(self):
        plain = json.loads(self.call('run', CHAT, '--greedy', '--ignore-eos', '-n', '40', '--draft', 'none', '--json'))
        for accepts in ('0,1,2,3,4,5,6,7', '15,15', '2,0,9'):
            o = json.loads(self.call('run', CHAT, '--greedy', '--ignore-eos', '-n', '40', '--accepts', accepts, '--json'))
            d, asked = o['draft'], [int(a) for a in accepts.split(',')]
            self.assertEqual(o['logits_sha256'], plain['logits_sha256'])
            self.assertEqual(d['rounds'] + d['accepted'], 39)
            self.assertEqual((sum(d['accepted_by_position']), sum(d['proposed_by_position'])), (d['accepted'], d['proposed']))
            self.assertEqual(d['accepted'], sum(asked))
            self.assertEqual(d['accepted_by_position'][:max(asked)], [sum(a > i for a in asked) for i in range(max(asked))])
            self.assertAlmostEqual(d['mean_accepted'], d['accepted'] / d['rounds'])

    def test_what_json_says_of_drafts(self):
        kinds = {'kind': str, 'width': int, 'rounds': int, 'proposed': int, 'accepted': int, 'mean_accepted': float, 'accepted_by_position': list,
                 'proposed_by_position': list, 'declined': list, 'seconds': dict}
        for args, kind, width in ((['--draft', 'none'], 'none', 1), (['--draft-width', '1'], 'none', 1), (['--draft', 'mtp', '--draft-width', '1'], 'mtp', 1),
                                  (['--draft', 'mtp', '-n', '0'], 'mtp', 0), (['-n', '1'], 'none', 0), (['--draft', 'dflash', '-n', '2'], 'dflash', 1),
                                  (['--draft', 'lookup', '--draft-width', '16'], 'lookup', None), (['--draft', 'mtp', '--draft-width', '4'], 'mtp', 4),
                                  (['--draft', 'dflash', '--draft-width', '16', '-n', '40', '--ignore-eos'], 'dflash', 16),
                                  (['--draft', 'mtp', '--draft-width', '16', '--ctx', '19', '--ignore-eos'], 'mtp', 5),
                                  (['--draft', f'model:{ROOT}/models/atto', '--draft-width', '3', '--stop', 'our'], 'model', 3)):
            with self.subTest(args):
                out, said = self.both('run', CHAT, '--greedy', '--json', *args)
                o, waits = json.loads(out), 'waits for its check' in said # on a slow machine a narrower block serves
                d = o['draft']
                self.assertEqual({k: type(v) for k, v in d.items()}, kinds)
                self.assertEqual({k: type(v) for k, v in d['seconds'].items()}, {k: float for k in ('draft', 'verify', 'commit')})
                self.assertEqual((d['kind'], d['declined']), (kind, []))
                if width is not None: self.assertIn(d['width'], range(1, width + 1) if waits else [width])
                self.assertEqual(d['rounds'] + d['accepted'], max(0, len(o['token_ids']) - 1))
                self.assertEqual((sum(d['accepted_by_position']), sum(d['proposed_by_position'])), (d['accepted'], d['proposed']))
        out, said = self.both('run', CHAT, '--greedy', '--json', '--draft', 'dflash', env={'VERBATIM_FAULT': 'rope-rows'})
        d = json.loads(out)['draft']
        self.assertEqual((d['kind'], d['width'], d['proposed']), ('dflash', 1, 0))
        self.assertTrue(set(d['declined']) <= set(range(2, 17)), d) # those that were asked for
        if 'waits for its check' not in said: self.assertIn(16, d['declined'])

    def test_accepts_beyond_the_end(self):
        run = ('run', CHAT, '--greedy', '--ignore-eos', '-n', '20', '--accepts')
        self.assertEqual(self.both(*run, '3,10,0')[1], '')
        self.assertIn('accepts: round 2 of 3 accepted 3 of 15: the answer ends there', self.both(*run, '14,15,3')[1])
        self.assertIn('accepts: 2 of 5 rounds were run: the answer ends behind them', self.both(*run, '14,3,0,0,0')[1])
        self.assertIn('--accepts: is 99999999999999999999 at number 2, expected numbers below', self.call(*run, '3,99999999999999999999,1', code=2))
        for accepts in ('16', '3,16', '4096'): # before the model is loaded
            self.assertIn('--accepts: is ' + accepts.split(',')[-1], self.call(*run, accepts, '-m', 'nowhere', code=2))
        self.assertIn('--accepts: needs drafting', self.call(*run, '3', '--draft', 'none', code=2))

    def test_replay(self):
        # every way to end: end token, token limit, stop string, context end inside a block, penalties on the way
        for args in ([], ['-n', '11'], ['--stop', 'e, f'], ['--ignore-eos', '--ctx', '40'], ['--ignore-eos', '--ctx', '15'], ['-n', '0'],
                     ['--temp', '0.8', '--seed', '9223372036854775807', '--repeat-penalty', '1.2', '-n', '30'],
                     ['--draft', 'lookup', '--draft-width', '16', '-n', '30'], ['--accepts', '3,0,15', '--ignore-eos', '-n', '30']):
            with self.subTest(args):
                answer, lines = self.trace('t', *args)
                self.assertEqual(lines[1]['token_ids'], answer['token_ids'])
                self.assertEqual(sum(lines[1]['accepted']), answer['draft']['accepted'])
                self.assertIn('equal: 1 requests', self.call('replay', 't'))

    def test_edited_traces(self):
        _, (header, request) = self.trace('t', '-n', '20')
        def replay(code, says, head=None, **fields):
            name = self.edited([{**header, **(head or {})}, {**request, **fields}])
            self.assertIn(says, self.call('replay', name, code=code))
        tokens = request['token_ids']
        replay(1, 'tokens, token 5', token_ids=tokens[:5] + [tokens[5] + 1] + tokens[6:])
        replay(1, 'tokens, token 5', token_ids=tokens[:5])
        replay(1, 'line 2 of the trace: logits; every token and round is the same', logits_sha256='0' * 64)
        replay(1, 'rounds', accepted=[15] * 9, proposed=[15] * 9)
        at = 'verbatim: error: edited:2: '
        replay(3, at + 'token_ids: entry 1', token_ids=[1, 1 << 30])
        replay(3, at + 'token_ids: entry 0', token_ids=[2147483647] * 20, accepted=[0] * 5, proposed=[5] * 5)
        replay(3, at + 'prompt_ids: entry 0', prompt_ids=[16384])
        replay(3, at + 'prompt: no tokens', prompt_ids=[])
        replay(3, at + 'prompt is too long', prompt_ids=[1] * 5000)
        replay(3, at + 'logit_bias: entry 0 has the id 4294967301', logit_bias=[[4294967301, 1.0]])
        replay(3, at + 'logit_bias', logit_bias=[[5, 1e300]])
        replay(3, at + 'proposed: has 1 rounds', accepted=[], proposed=[1])
        replay(3, at + 'accepted: entry 1 is 2, expected at most the 1', accepted=[1, 2], proposed=[1, 1])
        replay(3, at + 'accepted: entry 0 is not an integer of 0 to 15', accepted=[16], proposed=[16])
        replay(3, at + 'logits_sha256: is "0"', logits_sha256='0')
        replay(3, at + 'temperature', sampling={**request['sampling'], 'temperature': -5})
        replay(3, 'edited:1: activations: is 12', head={'activations': 12})
        replay(3, 'edited:1: contract: is 2', head={'contract': 2})
        replay(3, 'edited:1: trace: is format 2, expected 1', head={'trace': 2})
        replay(3, 'edited:1: path: /nowhere: ', head={'path': '/nowhere'})
        replay(3, 'edited:1: ctx', head={'ctx': 1 << 40})
        replay(3, 'is another model', head={'model': '0' * 32})
        self.assertIn('comes before any header', self.call('replay', self.edited([request]), code=3))
        self.assertIn('no request', self.call('replay', self.edited([header]), code=3))
        # a header without ctx, as it was once written
        del header['ctx']
        self.assertIn('equal', self.call('replay', self.edited([header, request, header, request])))
        # cut in the middle of a line; one endless line, which must not fill the memory
        with open(os.path.join(self.dir, 't')) as f: text = f.read()
        with open(os.path.join(self.dir, 'cut'), 'w') as f: f.write(text[:-30])
        self.assertIn('cut:2: ', self.call('replay', 'cut', code=3))
        with open(os.path.join(self.dir, 'endless'), 'w') as f: f.truncate(1 << 40)
        self.assertIn('endless:1: the line does not end', self.call('replay', 'endless', code=3))

    def test_drafters_that_do_not_fit(self):
        src, folder = os.path.join(ROOT, 'models', 'atto-dflash'), os.path.join(self.dir, 'drafter')
        with open(os.path.join(src, 'config.json')) as f: config = json.load(f)
        with open(os.path.join(src, 'model.safetensors'), 'rb') as f: data = f.read()
        size = 8 + int.from_bytes(data[:8], 'little')
        head = json.loads(data[8:size])

        def drafter(config, head=head):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            text = json.dumps(head).encode()
            with open(os.path.join(folder, 'config.json'), 'w') as f: json.dump(config, f)
            with open(os.path.join(folder, 'model.safetensors'), 'wb') as f: f.write(len(text).to_bytes(8, 'little') + text + data[size:])

        def refused(says, kind='dflash', **made):
            drafter(**{'config': config, **made})
            self.assertIn(f'verbatim: error: --draft {kind}: {folder}: {says}', self.call('run', 'x', '-n', '2', '--draft', f'{kind}:{folder}', code=3))

        inner = lambda **k: {**config, 'dflash_config': {**config['dflash_config'], **k}}
        refused("hidden_size: is 1024, expected the target's 512", config={**config, 'hidden_size': 1024})
        refused("vocab_size: is 16400, expected the target's 16384", config={**config, 'vocab_size': 16400})
        refused("num_target_layers: is 24, expected the target's 12", config={**config, 'num_target_layers': 24})
        refused('config.json: dflash_config.target_layer_ids[2]: is 12, expected strictly ascending layers below 12', config=inner(target_layer_ids=[1, 5, 12]))
        refused('config.json: dflash_config.mask_token_id: is 16384, expected an integer 0..16383', config=inner(mask_token_id=16384))
        refused('model.safetensors: tensor norm.weight: is missing', head={('norm.scale' if k == 'norm.weight' else k): v for k, v in head.items()})
        refused('model.safetensors: tensor norm.weight: dtype is "F6"', head={**head, 'norm.weight': {**head['norm.weight'], 'dtype': 'F6'}})
        refused('is a DFlash drafter, expected a model', kind='model')
        drafter(config)
        self.call('run', 'x', '-n', '2', '--draft', f'dflash:{folder}')
        for spec, says in ((f'dflash:{ROOT}/models/atto', 'is no DFlash drafter (qwen3_5), expected DFlashDraftModel'),
                           ('dflash:nowhere', 'nowhere: is neither a folder'), ('model:nowhere', 'nowhere: is neither a folder')):
            self.assertIn(says, self.call('run', 'x', '-n', '2', '--draft', spec, code=3))
        # asked for by nobody, one that does not fit is left out, and said to be
        os.symlink(os.path.join(ROOT, 'models', 'atto'), os.path.join(self.dir, 'target'))
        drafter({**config, 'num_target_layers': 24})
        os.rename(folder, os.path.join(self.dir, 'target-dflash'))
        says = "auto leaves out dflash: --draft dflash: target-dflash: num_target_layers: is 24, expected the target's 12"
        self.assertEqual(self.both('run', 'x', '-n', '2', '--greedy', '-m', 'target')[1].count(says), 1)
        self.assertIn("num_target_layers: is 24", self.call('run', 'x', '-m', 'target', '--draft', 'dflash', code=3))

    def test_where_a_trace_goes(self):
        run = ('run', 'x', '-n', '2', '--greedy', '--draft', 'none', '--trace')
        path = lambda name: os.path.join(self.dir, name)
        def content(name):
            with open(path(name), 'rb') as f: return f.read()
        def refused(name, says, left=None):
            # before the model is loaded: it is not there
            self.assertIn(says, self.call(*run, name, '-m', 'nowhere', code=2 if name == '' else 3))
            if left is not None: self.assertEqual(content(name), left)
        # somebody's file is left as it is
        for text in (b'notes', b'{"a": 1}\n', b'{"type":"request"}\n', b'\n', b'{"type":"header","trace":1', b'{"type":"header","trace":"1"}\n'):
            with open(path('mine'), 'wb') as f: f.write(text)
            refused('mine', 'verbatim: error: mine: is no trace, expected a new file or one written by --trace', text)
        with open(path('mine'), 'wb') as f: f.write(b'{"type":"header","trace":2}\n')
        refused('mine', 'mine: is a trace of format 2, expected 1 or a new file')
        os.mkfifo(path('pipe'))
        refused('pipe', 'pipe: is not a regular file') # at once
        os.symlink('pointed', path('link'))
        refused('link', 'link: is a symbolic link, expected a file')
        self.assertFalse(os.path.exists(path('pointed')))
        refused('', '--trace: is empty')
        refused('.', '.: cannot be opened')
        refused('/dev/full', '/dev/full: is not a regular file')
        refused('no/t', 'no/t: cannot be opened (No such file or directory)')
        refused('mine/t', 'mine/t: cannot be opened (Not a directory)')
        # a full disk: what was there stays whole
        self.call(*run, 'full')
        whole = content('full')
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 100, resource.RLIM_INFINITY))
        self.assertIn('full: could not be written', self.call(*run, 'full', code=3, preexec_fn=limit))
        self.assertEqual(content('full'), whole)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + len(whole.split(b'\n')[0]) + 20, resource.RLIM_INFINITY))
        self.assertIn('full: could not be written', self.call(*run, 'full', code=3, preexec_fn=limit))
        self.assertEqual(content('full').count(b'\n'), 3)
        self.assertIn('equal: 1 requests', self.call('replay', 'full'))
        # a last line that was cut short is dropped, and said to be
        for cut in (30, 2 << 14):
            with open(path('full'), 'wb') as f: f.write(whole + b'{"type":"request"' + b' ' * cut)
            self.assertIn('its last line was cut short: %d bytes are dropped' % (cut + 17), self.both(*run, 'full')[1])
            self.assertIn('equal: 2 requests', self.call('replay', 'full'))

    def test_programs_that_share_a_trace(self):
        # of two models and settings, at the same time; replay must know which request belongs to which
        os.symlink(os.path.join(ROOT, 'models', 'atto'), os.path.join(self.dir, 'here'))
        env = {k: v for k, v in os.environ.items() if not k.startswith('VERBATIM_')}
        env['VERBATIM_HOME'] = self.dir
        args = [['--activations', a, '--ctx', str(100 + i)] for i in range(3) for a in ('8', '16')]
        running = [subprocess.Popen([PROGRAM, 'run', CHAT, '-m', 'here', '-n', '24', '--greedy', '--ignore-eos', '--trace', 'shared', *a],
                                    cwd=self.dir, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for a in args]
        self.assertEqual([p.wait(120) for p in running], [0] * 6)
        with open(os.path.join(self.dir, 'shared')) as f: lines = [json.loads(l) for l in f]
        settings, header = [], None
        for l in lines:
            if l['type'] == 'header': header = l
            else: settings.append((header['activations'], header['ctx']))
        self.assertEqual(sorted(settings), sorted([(int(a[1]), int(a[3])) for a in args]))
        # from another folder: the path of the model is whole
        self.assertIn('equal: 6 requests', self.call('replay', os.path.join(self.dir, 'shared'), cwd='/'))

    def test_a_path_that_is_no_text(self):
        link = os.path.join(os.fsencode(self.dir), b'at\xffto')
        os.symlink(os.path.join(ROOT, 'models', 'atto').encode(), link)
        self.call('run', 'x', '-n', '2', '--greedy', '-m', link, '--trace', 'u')
        self.assertIn('equal', self.call('replay', 'u', '-m', link))
        self.assertIn('at?to', json.loads(self.call('inspect', '-m', link, '--json'))['path'])
        d = self.call('verify', '-m', link, '--quick', '--json', code=1, env={'VERBATIM_FAULT': 'linear-rows'})
        self.assertIn('at?to', json.loads(d)['path'])

    def test_verify_names_planted_faults(self):
        for fault, tensor in (('linear-rows', 'after layer 0'), ('attention-rows', 'after layer 3'), ('rope-rows', 'after layer 3'),
                              ('state-commit', 'after layer 0'), ('kv-truncate', 'after layer 3')):
            with self.subTest(fault):
                d = json.loads(self.call('verify', '--quick', '--json', code=1, env={'VERBATIM_FAULT': fault}))['first_difference']
                self.assertEqual(d['where'], 'blocks')
                self.assertIn(tensor, d['tensor'])

    def test_verify_without_drafters(self):
        c = json.loads(self.call('verify', '--draft', 'none', '--json', env={'VERBATIM_CPU': 'avx2', 'VERBATIM_FAULT': 'draft-crash'}))
        self.assertEqual((c['grid']['drafters'], c['grid']['widths'], c['grid']['gate'], c['grid']['proposed']), (['none'], [1], [], {}))
        self.assertEqual(c['fault'], 'draft-crash')

    def test_verify_checks_every_width(self):
        self.call('verify', '--quick', '--draft', 'mtp', '--certificate', 'c', env={'VERBATIM_CPU': 'avx2'})
        with open(os.path.join(self.dir, 'c')) as f: c = json.load(f)
        self.assertEqual((c['equal'], c['grid']['levels'], c['grid']['drafters']), (True, ['avx2', 'c'], ['none', 'mtp']))
        self.assertEqual({len(h['logits_sha256']) for h in c['hashes']}, {64})
        # it says what was run
        grid = c['grid']
        self.assertEqual((grid['gate'], grid['blocks']), (list(range(2, 17)), [2, 5, 16]))
        self.assertTrue({1, 16} <= set(grid['widths']) <= set(range(1, 17)), grid) # the rest where there was time for it
        self.assertTrue(set(grid['chunks']) <= {1, 7, 33, 512} and set(grid['neighbours']) <= {0, 1, 3} and set(grid['cache']) <= {'cold', 'warm'}, grid)
        self.assertEqual(sum(r['cells'] for r in grid['runs']), c['cells'])
        self.assertEqual(list(dict.fromkeys(r['threads'] for r in grid['runs'])), grid['threads'])
        self.assertEqual(list(grid['proposed']), ['mtp'])
        self.assertRegex(c['build'], r'^[0-9.]+ (gcc|clang)[0-9.]+ [0-9a-f]*$')
        self.assertIsNone(c['fault'])
        # however slow the machine is, all widths have their answer afterwards
        with open(os.path.join(self.dir, 'gate.memo')) as f: memo = [l.split() for l in f if '/avx2' in l]
        self.assertEqual({int(w) for _, w, s in memo if s == 'passed'}, set(range(2, 17)))
        self.call('verify', '--quick', '--draft', 'mtp', env={'VERBATIM_CPU': 'avx2'})
        with open(os.path.join(self.dir, 'gate.memo')) as f: self.assertEqual([l.split() for l in f if '/avx2' in l], memo)

    def test_tune_on_given_prompts(self):
        for name, text in (('longer', 'word ' * 4080), ('none', ''), ('bad', b'a\xff')): self.file(name, text)
        tune = ('tune', '--draft', 'lookup', '-n', '16', '--json')
        self.assertIn('tokens, and an answer 17, expected at most 4096 together', self.call(*tune, '--prompt-file', 'none', '--prompt-file', 'longer', code=4))
        self.assertIn('prompt 1 of 1: is no valid UTF-8', self.call(*tune, '--prompt-file', 'bad', code=3))

    def test_tuned_width_is_where_a_run_begins(self):
        self.call('run', 'x', '--greedy', '-n', '40', '--ignore-eos', '--draft', 'lookup', '--draft-width', '2') # its gate leaves the key
        with open(os.path.join(self.dir, 'gate.memo')) as f: key = f.readlines()[-1].split()[0].rsplit('/', 1)[0]
        text, seen = 'one two three four five six seven eight nine ten, ' * 3 + 'one two three four', []
        for width in (2, 5, 12):
            with open(os.path.join(self.dir, 'tune.memo'), 'w') as f:
                f.write(f'{key} t2 lookup 9 9\nx{key} t1 lookup 8 9\n{key} t1 lookup 3 1\n{key} t1 lookup {width} 1.5\n{key} t1 lookup 7')
            lines = self.trace('tuned', '--raw', '--prompt-file', self.file('text', text), '-n', '40', '--ignore-eos', '--draft', 'lookup', '-t', '1')[1]
            seen.append(next(n for n in lines[1]['proposed'] if n > 0) + 1)
        os.remove(os.path.join(self.dir, 'tune.memo'))
        self.assertEqual(seen, [2, 5, 12])

    def test_tune(self):
        o = json.loads(self.call('tune', '--draft', 'lookup', '-n', '16', '--json'))
        self.assertEqual([a['width'] for a in o['arms']], list(range(2, 17)))
        for a in o['arms']: self.assertTrue(a['least'] <= a['ratio'] <= a['largest'], a)
        with open(os.path.join(self.dir, 'tune.memo')) as f: self.assertEqual(len(f.readlines()), len(o['stored']))
        # widths that the gate declines are no arms: a narrower one would serve in their place
        o = json.loads(self.call('tune', '--draft', 'lookup', '-n', '16', '--json', env={'VERBATIM_FAULT': 'linear-rows'}))
        self.assertEqual((o['arms'], o['stored']), ([], []))
        self.assertIn('/dev/null/x: cannot be made', self.call('tune', '--draft', 'lookup', '-n', '16', code=3, env={'VERBATIM_HOME': '/dev/null/x'}))


if __name__ == '__main__':
    PROGRAM, ROOT = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
