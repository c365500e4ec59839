#!/usr/bin/env python3
"""The command line over a stand-in library (fake_verbatim.c): options, sources of the prompt, JSON, exit codes.

usage: test_cli.py PROGRAM"""
import json, os, pty, re, resource, signal, struct, subprocess, sys, tempfile, unittest, select

PROGRAM = None
OVERRIDES = [v for v in os.environ if v.startswith('VERBATIM_')]


class Cli(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.dir = cls.tmp.name
        for d in ('m', 'bare', 'plain', 'home/models/own/er'): os.makedirs(os.path.join(cls.dir, d))

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def run_it(self, *args, input='', env=None, code=0):
        e = {k: v for k, v in os.environ.items() if k not in OVERRIDES}
        e.update({'VERBATIM_HOME': os.path.join(self.dir, 'home'), 'VERBATIM_MODEL': os.path.join(self.dir, 'm')})
        e.update(env or {})
        p = subprocess.run([PROGRAM, *args], input=input.encode(), capture_output=True, env=e, cwd=self.dir, timeout=60)
        out, err = p.stdout.decode(), p.stderr.decode()
        self.assertEqual(p.returncode, code, out + err)
        if code:
            self.assertRegex(err, r'^verbatim: error: [^\n]+\n$')
            self.assertEqual(out, '')
        return (out, err)

    def write(self, name, text):
        with open(os.path.join(self.dir, name), 'w') as f: f.write(text)

    def error(self, *args, says='', code=2, **k):
        self.assertIn(says, self.run_it(*args, code=code, **k)[1])

    def test_help_and_manual(self):
        top = self.run_it('--help')[0]
        commands = re.findall(r'^  ([a-z]+) +\S', top, re.M)
        self.assertGreaterEqual(set(commands), {'run', 'chat', 'bench', 'inspect', 'tokenize', 'template', 'quantize'})
        man = self.run_it('help', '--man')[0]
        self.assertTrue(man.startswith('.TH VERBATIM 1'))
        for c in commands:
            text = self.run_it(c, '--help')[0]
            self.assertEqual(text, self.run_it('help', c)[0])
            self.assertTrue(text.startswith('usage: verbatim ' + c))
            self.assertLess(max(map(len, text.split('\n'))), 121)
            options = re.findall(r'^  (?:-\w, |    )--([a-z0-9-]+)', text, re.M)
            self.assertGreater(len(options), 0)
            for o in options:
                if o != 'help': self.assertIn('\\-\\-' + o.replace('-', '\\-'), man)
        self.assertRegex(self.run_it('--version')[0], r'^verbatim \d+\.\d+\.\d+ \(contract 1\)\n$')

    def test_usage_errors(self):
        p = subprocess.run([PROGRAM], capture_output=True)
        self.assertEqual((p.returncode, p.stdout), (2, b''))
        self.error('fly', says='fly: unknown command')
        self.error('help', 'fly', says='fly: unknown command')
        self.error('run', '--fly', 'x', says='--fly: unknown option')
        self.error('run', '-Z', 'x', says='-Z: unknown option')
        self.error('run', '-n', says='-n: has no value')
        self.error('run', '-n', '1.5', 'x', says='-n: is "1.5"')
        self.error('run', '-n', ' 5', 'x', says='expected a whole number')
        self.error('run', '-n', '-1', 'x', says='-n: is -1, expected 0 to')
        self.error('run', '--temp=hot', 'x', says='--temp: is "hot"')
        self.error('run', '--temp', 'nan', 'x', says='--temp')
        self.error('run', '--temp', '-1', 'x', says='--temp: is -1, expected 0 to 100')
        self.error('run', '--raw=1', 'x', says='--raw: has a value')
        self.error('run', '--activations', '12', 'x', says='expected 8|16')
        self.error('run', '--activations', '', 'x', says='expected 8|16')
        self.error('run', 'x', 'y', says='y: unexpected argument')
        self.error('run', 'x', '-p', 'y', says='given 2 times')
        self.error('run', '--all-logits', 'x', says='--all-logits')
        self.error('run', '--stop', '', 'x', says='--stop')
        self.error('run', *['--stop', 'x'] * 17, 'x', says='--stop: given too often')
        self.error('run', '--ids', '1,x', says='--ids')
        self.error('run', '--ids', '', says='--ids')
        self.error('run', '--ids', '99999999', says='--ids')
        self.error('run', '--ids', '@nowhere', says='nowhere', code=3)
        self.error('run', '--draft-width', '17', 'x', says='1 to 16')
        self.error('run', 'x', env={'VERBATIM_THREADS': 'many'}, says='VERBATIM_THREADS')
        self.error('run', 'x', env={'VERBATIM_NO_HEAD_CHUNK': 'yes'}, says='VERBATIM_NO_HEAD_CHUNK')
        self.error('template', says='--stdin-jsonl')
        self.error('quantize', '-m', 'm', says='-o DIR')
        self.error('quantize', '-m', 'm', '-o', 'x', '--bits', '9', says='2|3|4|5|6|7|8')
        self.error('quantize', '-m', 'm', '-o', 'x', says='4 bits, groups of 64', code=3)
        self.error('bench', '--geometry', 'huge', says='qwen3.5-0.8b|')
        self.error('run', '--system', 'be', '--ids', '97', says='--system: given with --ids')
        self.error('run', '-m', '/no/such/model', 'x', says='/no/such/model: No such file or directory', code=3)
        self.error('run', '--prompt-file', '', says='file name: is empty', code=3)
        self.error('run', '--prompt-file', 'm', says='m: is not a regular file, expected one', code=3)
        self.error('run', 'x', env={'VERBATIM_FAULT': 'nonsense'}, says='VERBATIM_FAULT: is "nonsense"')
        self.run_it('run', 'x', env={'VERBATIM_FAULT': 'linear-rows'})
        self.run_it('run', 'x', env={'VERBATIM_FAULT': ''})
        self.error('chat', '--stop', '', says='--stop: is empty')
        self.error('tune', '--draft', 'none', says='--draft: is "none"')
        self.error('inspect', '-m', 'm', 'm', says='given --model and an argument')
        self.run_it('inspect', 'm')
        self.error('bench', '--tokens', '4', says='--tokens: only bench serve')
        self.error('bench', '--draft-width', '4', says='--draft-width: only bench --draft')
        self.error('bench', 'serve', '--prefill', '4', says='--prefill')
        self.error('bench', '--draft', '--ctx', '4', says='--ctx')
        self.error('bench', '--geometry', 'qwen3.5-2b', '-m', 'm', says='both --model and --geometry')
        self.run_it('bench', '--geometry', 'qwen3.5-2b')

    def test_help_as_a_value(self):
        self.assertEqual(self.run_it('run', '-p', '--help')[0], '<USER>--HELP\n')
        self.assertEqual(self.run_it('run', '-p', '-h')[0], '<USER>-H\n')
        self.assertEqual(self.run_it('run', '--system', '-h', 'x')[0], '<SYSTEM>-H<USER>X\n')
        self.assertEqual(self.run_it('run', '--', '-h')[0], '<USER>-H\n')
        for args in (['-px', '--help'], ['--prompt=x', '-h'], ['--fly', '--help'], ['-n', 'x', '--help'], ['--raw', '-h']):
            self.assertTrue(self.run_it('run', *args)[0].startswith('usage: verbatim run'), args)

    def test_ids(self):
        self.write('ids', ' [97, 98,\n99 ]\n')
        self.assertEqual(self.run_it('run', '--ids', '@ids')[0], 'ABC\n')
        self.assertEqual(self.run_it('run', '--ids', ' 97 ,98 99')[0], 'ABC\n')
        for bad in ('1,,2', '1,', ',1', '1;2', '-1', '+1', '1.5', '0x10', '[1', '1]', '[1]2', '[1,]', '[]', '[[1]]', '1 ]', '1x',
                    '99999999999999999999'):
            self.error('run', '--ids', bad, says='--ids: ')

    def test_standard_files_closed(self):
        """A file that is opened must not take the number of a closed standard file."""
        for close, code in (('>&-', 3), ('2>&-', 0), ('<&-', 0)):
            p = subprocess.run(['sh', '-c', f'exec "$0" run -m m --raw hello -n 3 --logits-out closed {close}', PROGRAM], cwd=self.dir,
                               env=dict(os.environ, VERBATIM_FAULT=''), capture_output=True)
            self.assertEqual(p.returncode, code, (close, p.stderr))
            if code == 0:
                self.assertEqual(p.stdout, b'HEL\n')
                self.assertEqual(self.rows('closed'), [4, 5, 6])
            else: # the first write fails; with the file under number 1 it would have gone in there, and the file stayed
                self.assertIn(b'standard output: Bad file descriptor', p.stderr)
                self.assertFalse(os.path.exists(os.path.join(self.dir, 'closed')))

    def test_files_that_are_no_files(self):
        """A device or a pipe must not be replaced; a link stays one."""
        os.mkfifo(os.path.join(self.dir, 'pipe'))
        for name in ('pipe', '/dev/stdout', 'm'):
            self.error('run', '--raw', 'x', '--logits-out', name, says='is not a regular file', code=3)
            self.error('verify', '--certificate', name, says='is not a regular file', code=3)
        self.error('verify', '--certificate', 'no/where', says='no/where', code=3)
        os.symlink('real', os.path.join(self.dir, 'link'))
        self.write('real', '')
        self.run_it('run', '--raw', 'hello', '-n', '3', '--logits-out', 'link')
        self.assertTrue(os.path.islink(os.path.join(self.dir, 'link')))
        self.assertEqual(self.rows('real'), [4, 5, 6])

    def test_environment(self):
        # the command line replaces a list of the environment and does not add to it
        origins = lambda *args: re.findall('origin (.*)', self.run_it('serve', *args, env={'VERBATIM_CORS': 'http://a'})[0])
        self.assertEqual(origins(), ['http://a'])
        self.assertEqual(origins('--cors', 'http://b', '--cors', 'http://c'), ['http://b', 'http://c'])
        self.error('verify', env={'VERBATIM_MODEL': '/no/such'}, says='/no/such', code=3)
        self.error('tune', env={'VERBATIM_MODEL': '/no/such'}, says='/no/such', code=3)
        self.error('bench', env={'VERBATIM_MODEL': '/no/such'}, says='/no/such', code=3)
        self.error('verify', env={'VERBATIM_ACTIVATIONS': '12'}, says='VERBATIM_ACTIVATIONS')

    def test_prompt_sources(self):
        self.write('p.txt', 'from file')
        self.assertEqual(self.run_it('run', 'hi')[0], '<USER>HI\n')
        self.assertEqual(self.run_it('run', '-p', 'hi')[0], '<USER>HI\n')
        self.assertEqual(self.run_it('run', '-phi')[0], '<USER>HI\n')
        self.assertEqual(self.run_it('run', '--prompt=hi')[0], '<USER>HI\n')
        self.assertEqual(self.run_it('run', '--', '-hi')[0], '<USER>-HI\n')
        self.assertEqual(self.run_it('run', input='hi\n')[0], '<USER>HI\n')
        self.assertEqual(self.run_it('run', '--prompt-file', 'p.txt')[0], '<USER>FROM FILE\n')
        self.assertEqual(self.run_it('run', '--raw', 'hi')[0], 'HI\n')
        self.assertEqual(self.run_it('run', '--system', 'be', 'hi')[0], '<SYSTEM>BE<USER>HI\n')
        self.assertEqual(self.run_it('run', '--ids', '97,98')[0], 'AB\n')
        self.write('ids', '97 98\n99')
        self.assertEqual(self.run_it('run', '--ids', '@ids')[0], 'ABC\n')
        self.assertEqual(self.run_it('run', '-n', '2', '--raw', 'hello')[0], 'HE\n')
        self.error('run', '-m', 'plain', 'hi', says='chat_template')
        self.assertEqual(self.run_it('run', '-m', 'plain', '--raw', 'hi')[0], 'HI\n')
        self.error('run', '-m', 'bare', 'hi', says='tokenizer.json', code=3)
        self.assertEqual(self.run_it('run', '-m', 'bare', '--ids', '97')[0], 'A\n')
        self.error('run', '-m', 'missing', 'hi', says='missing', code=3)
        self.error('run', '-m', 'no/such', 'hi', says='model store', code=3)
        self.assertEqual(self.run_it('run', '-m', 'own/er', '--raw', 'hi')[0], 'HI\n')
        self.error('run', 'x' * 200, says='expected at most 100', code=4)

    def test_run_json(self):
        out, err = self.run_it('run', '--json', '--raw', 'hello', '-n', '3', '--threads', '5', '--temp', '0.5')
        o = json.loads(out)
        self.assertEqual(err, '')
        self.assertEqual(out.count('\n'), 1)
        self.assertEqual((o['text'], o['token_ids'], o['prompt_token_ids']), ('HEL', [72, 69, 76], list(b'hello')))
        self.assertEqual((o['finish_reason'], o['seed'], o['logits_sha256']), ('length', 77, 'a' * 64))
        self.assertEqual(set(o['timings']), {'load_s', 'prefill_s', 'decode_s', 'prefill_tokens_per_s', 'decode_tokens_per_s'})
        self.assertEqual(o['numerics'], {'class': 'cpu', 'contract': 1, 'activations': 8, 'level': 'c', 'threads': 5})
        d = o['draft']
        self.assertGreaterEqual(set(d), {'kind', 'width', 'rounds', 'proposed', 'accepted', 'mean_accepted', 'accepted_by_position', 'declined', 'seconds'})
        self.assertEqual(set(d['seconds']), {'draft', 'verify', 'commit'})
        self.assertEqual(json.loads(self.run_it('run', '--json', 'x', '--seed', '9007199254740993')[0])['seed'], 9007199254740993)
        self.assertIn('seed 77', self.run_it('run', '--temp', '1', 'x')[1])
        self.assertEqual(self.run_it('run', '--temp', '1', '--seed', '5', 'x')[1], '')
        self.assertEqual(json.loads(self.run_it('run', '--json', 'x', env={'VERBATIM_THREADS': '3'})[0])['numerics']['threads'], 3)
        self.assertEqual(json.loads(self.run_it('run', '--json', 'x', '-t', '2', env={'VERBATIM_THREADS': '3'})[0])['numerics']['threads'], 2)
        self.assertEqual(json.loads(self.run_it('run', '--json', 'x', '--neighbours', '7')[0])['text'], '<USER>X')

    def rows(self, name):
        with open(os.path.join(self.dir, name), 'rb') as f: b = f.read()
        n = struct.unpack('<Q', b[:8])[0]
        t = json.loads(b[8:8 + n])['logits']
        self.assertEqual(t['dtype'], 'F32')
        self.assertEqual(t['data_offsets'], [0, len(b) - 8 - n])
        self.assertEqual(t['shape'][1], 256)
        self.assertEqual(t['shape'][0] * 1024, len(b) - 8 - n)
        return [struct.unpack_from('<f', b, 8 + n + 1024 * i)[0] for i in range(t['shape'][0])]

    def test_logits_out(self):
        self.run_it('run', '--raw', 'hello', '-n', '3', '--logits-out', 'l')
        self.assertEqual(self.rows('l'), [4, 5, 6])
        self.run_it('run', '--raw', 'hello', '-n', '3', '--logits-out', 'l', '--all-logits')
        self.assertEqual(self.rows('l'), [0, 1, 2, 3, 4, 5, 6])
        self.run_it('run', '--raw', 'hello', '-n', '0', '--logits-out', 'l', '--all-logits')
        self.assertEqual(self.rows('l'), [0, 1, 2, 3, 4])
        self.error('run', 'x', '--logits-out', 'no/where', says='no/where', code=3)
        self.assertNotIn('l.part', os.listdir(self.dir))

    def test_stopped(self):
        """A signal lets quantize clean up, and the process ends by that signal."""
        for sig in (signal.SIGINT, signal.SIGTERM):
            p = subprocess.Popen([PROGRAM, 'quantize', '-m', 'm', '-o', 'slow'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.dir)
            p.stdout.readline()
            p.send_signal(sig)
            err = p.communicate(timeout=20)[1]
            self.assertEqual((p.returncode, err), (-sig, b'verbatim: error: slow: quantising was stopped\n'))

    def test_full_disk(self):
        with open('/dev/full', 'w') as full:
            p = subprocess.run([PROGRAM, 'run', '-m', os.path.join(self.dir, 'm'), '--json', 'x'], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(p.returncode, 3)
        self.assertIn(b'standard output', p.stderr)
        with open('/dev/full', 'w') as full: # an answer cut short leaves no file that looks whole
            p = subprocess.run([PROGRAM, 'run', '-m', 'm', '--raw', 'hello', '--logits-out', 'cut'], stdout=full, stderr=subprocess.PIPE, cwd=self.dir)
        self.assertEqual(p.returncode, 3)
        self.assertEqual([f for f in os.listdir(self.dir) if f.startswith('cut')], [])
        p = subprocess.run([PROGRAM, 'run', '-m', 'm', '--raw', 'hello', '--all-logits', '--logits-out', 'cut'], capture_output=True, cwd=self.dir,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
        self.assertEqual((p.returncode, p.stdout), (3, b''))
        self.assertIn(b'cut: File too large', p.stderr)
        self.assertEqual([f for f in os.listdir(self.dir) if f.startswith('cut')], [])

    def test_chat_lines(self):
        out = self.run_it('chat', input='hi\n\na\\\nb\n/reset\nc\n/exit\nnever\n')[0]
        self.assertEqual(out, '<USER>HI\n\n<USER>HI<ASSISTANT><USER>HI<USER>A\nB\n\n<USER>C\n\n')

    def test_chat_interrupted(self):
        """Ctrl-C at the prompt drops the line; the conversation goes on."""
        pid, fd = pty.fork()
        if pid == 0:
            os.environ['TERM'] = 'dumb'
            os.execv(PROGRAM, [PROGRAM, 'chat', '-m', os.path.join(self.dir, 'm')])
        out = b''
        def until(what):
            nonlocal out
            while what not in out:
                b = os.read(fd, 4096)
                if not b: return
                out += b
        until(b'> ')
        os.write(fd, b'one\\\n')
        until(b'. ')
        os.write(fd, b'lost')
        until(b'lost')
        out = b''
        def insist(send, what):
            """Sends again after some seconds without any output: a Ctrl-C that comes before the line editor waits is forgotten, and one
            that comes late takes the line typed behind it along, as terminals do."""
            nonlocal out
            while what not in out:
                os.write(fd, send)
                while what not in out and select.select([fd], [], [], 4)[0]: out += os.read(fd, 4096)
        insist(b'\x03', b'> ')
        insist(b'two\n', b'<USER>TWO')
        os.write(fd, b'/exit\n')
        try: until(b'never')
        except OSError: pass
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertNotIn(b'LOST', out)
        self.assertNotIn(b'ONE', out)

    def test_chat_hostile(self):
        with open('/dev/full', 'w') as full:
            p = subprocess.run([PROGRAM, 'chat', '-m', 'm'], input=b'a\n' * 3, stdout=full, stderr=subprocess.PIPE, cwd=self.dir)
        self.assertEqual(p.returncode, 3)
        self.assertIn(b'standard output', p.stderr)
        folder = os.open(self.dir, os.O_RDONLY)
        p = subprocess.run([PROGRAM, 'chat', '-m', 'm'], stdin=folder, capture_output=True, cwd=self.dir)
        os.close(folder)
        self.assertEqual((p.returncode, p.stdout), (3, b''))
        self.assertIn(b'standard input', p.stderr)

    def test_chat_terminal(self):
        pid, fd = pty.fork()
        if pid == 0:
            os.environ['TERM'] = 'dumb'
            os.execv(PROGRAM, [PROGRAM, 'chat', '-m', os.path.join(self.dir, 'm')])
        os.write(fd, b'hello\n/exit\n')
        out = b''
        while True:
            try: b = os.read(fd, 4096)
            except OSError: break
            if not b: break
            out += b
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertIn(b'<USER>HELLO', out)
        # the progress bar came and went
        self.assertRegex(out, rb'\rload +-+ +0%\x1b\[K')
        self.assertIn(b'\r\x1b[K', out)

    def test_tokenize(self):
        self.assertEqual(self.run_it('tokenize', 'ab')[0], '97 98\n')
        self.assertEqual(json.loads(self.run_it('tokenize', '--json', 'ab')[0]), {'ids': [97, 98]})
        self.assertEqual(self.run_it('tokenize', '--decode', '97,98')[0], 'ab\n')
        self.assertEqual(self.run_it('tokenize', '--decode', '--json', '97 98')[0], '{"text":"ab"}\n')
        self.assertEqual(self.run_it('tokenize', input='ab')[0], '97 98\n')
        lines = self.run_it('tokenize', '--stdin-jsonl', input='{"text":"a"}\nbad\n\n{"text":"b"}')[0].split('\n')
        self.assertEqual([list(json.loads(l)) for l in lines[:-1]], [['ids'], ['error'], ['error'], ['ids']])
        self.assertEqual(self.run_it('tokenize', '--decode', '--stdin-jsonl', '--json', input='{"ids":[99]}\r\n')[0], '{"text":"c"}\n')

    def test_tokenize_hostile(self):
        for args in (['tokenize'], ['tokenize', '--decode'], ['tokenize', '--stdin-jsonl']):
            fd = os.open(self.dir, os.O_RDONLY)
            p = subprocess.run([PROGRAM, *args, '-m', 'm'], stdin=fd, capture_output=True, cwd=self.dir)
            os.close(fd)
            self.assertEqual((p.returncode, p.stdout), (3, b''), args)
            self.assertIn(b'standard input: ', p.stderr)
        self.error('tokenize', '--decode', input='1,2\0,3', says='NUL', code=3)

    def test_template(self):
        self.assertEqual(self.run_it('template', '--stdin-jsonl', '--json', input='{"template": ""}\n')[0], '{"text":"x"}\n')
        self.write('msgs', '[1]')
        self.assertEqual(self.run_it('template', '--messages', 'msgs')[0], '[1]')
        self.assertEqual(self.run_it('template', '--messages', 'msgs', '--json')[0], '{"text": "[1]"}\n'.replace(': ', ':'))

    def test_inspect_and_bench(self):
        self.assertEqual(json.loads(self.run_it('inspect', '--json', 'm')[0])['architecture'], 'fake')
        text = self.run_it('inspect')[0]
        self.assertIn('weight_bytes: 5242880 (5.0 MiB)', text)
        self.assertNotIn('tensors', text)
        self.assertIn('bb    3\n', self.run_it('inspect', '--tensors')[0])
        self.assertEqual(json.loads(self.run_it('bench', '--json', '--geometry', 'qwen3.5-0.8b')[0])['geometry'], 'qwen3.5-0.8b')
        self.assertIn('table of {"geometry":"model"', self.run_it('bench')[0])


if __name__ == '__main__':
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=1)
