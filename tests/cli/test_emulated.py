#!/usr/bin/env python3
"""The real program on CPUs that this machine is not: emulated by qemu-user, whose floating point is software of its own, so
equal hashes are also a second opinion on every instruction that the kernels use.

usage: test_emulated.py PROGRAM SOURCE_ROOT        (exit 77, skipped, where qemu-x86_64 is not installed: make setup-full)"""
import json, os, shutil, subprocess, sys, tempfile, unittest

PROGRAM = ROOT = None
QEMU = shutil.which('qemu-x86_64')


class Emulated(unittest.TestCase):
    def call(self, cpu, *args):
        with tempfile.TemporaryDirectory() as home:
            env = {k: v for k, v in os.environ.items() if not k.startswith('VERBATIM_')}
            env['VERBATIM_HOME'] = home
            return subprocess.run(([QEMU, '-cpu', cpu] if cpu else []) + [PROGRAM, *args], capture_output=True, text=True, env=env, timeout=280)

    def answer(self, cpu, *args):
        p = self.call(cpu, 'run', '--ids', '414,2909,7', '--ignore-eos', '--json', *args)
        self.assertEqual(p.returncode, 0, p.stderr)
        return json.loads(p.stdout)

    def same(self, cpu, *args):
        here, there = self.answer(None, *args), self.answer(cpu, *args)
        self.assertEqual(there['numerics']['level'], 'avx2')
        self.assertEqual([there[k] for k in ('token_ids', 'logits_sha256')], [here[k] for k in ('token_ids', 'logits_sha256')])
        return there

    def test_avx2_without_avx512(self):
        for cpu in ('Haswell', 'EPYC-Rome'):
            with self.subTest(cpu): self.same(cpu, '-n', '6', '--draft', 'none', '--greedy')

    def test_golden_hashes(self):
        """The first two prompts of tests/golden/test_invariance.c on the 4-bit model: the hashes that every machine gives."""
        with open(os.path.join(ROOT, 'tests', 'golden', 'invariance_hashes.h')) as f: golden = f.read().split('{"4 bit",')[1].split('"')
        golden = [h for h in golden if len(h) == 64][:2]
        for i, count in enumerate((3, 17)):
            ids, z = [], 77 + i
            for _ in range(count):
                z = (z * 6364136223846793005 + 1442695040888963407) % 2**64
                ids.append((z >> 33) % 16384)
            p = self.call('EPYC-Rome', 'run', '--ids', ','.join(map(str, ids)), '-n', '8', '--ignore-eos', '--temp', '0.8', '--seed', '5',
                          '--top-p', '1', '--top-k', '0', '--draft', 'none', '--json')
            self.assertEqual(p.returncode, 0, p.stderr)
            self.assertEqual(json.loads(p.stdout)['logits_sha256'], golden[i])

    def test_avx2_drafting(self):
        """The gate cannot end its check in its budget here: plain decode serves, nothing is declined, nothing waits for it."""
        answer = self.same('Haswell', '-n', '6', '--draft', 'mtp', '--draft-width', '3', '--temp', '0.8', '--seed', '7')
        draft, timings = answer['draft'], answer['timings']
        self.assertEqual((draft['kind'], draft['declined'], draft['proposed']), ('mtp', [], 0))
        self.assertLess(draft['seconds']['draft'], 15 * timings['prefill_s'])  # 16 rows; the prompt is 3, the check 96 and more

    def test_before_fma(self):
        for cpu in ('Nehalem', 'SandyBridge'):
            for command in (['run', '-n', '1', 'x'], ['inspect'], ['tokenize', 'x'], ['bench'], ['verify', '--quick']):
                with self.subTest(f'{cpu}: {command[0]}'):
                    p = self.call(cpu, *command)
                    errors = [line for line in p.stderr.splitlines() if not line.startswith('qemu-x86_64: warning:')]
                    self.assertEqual((p.returncode, p.stdout, errors),
                                     (4, '', ['verbatim: error: CPU: no FMA3, expected an x86-64 CPU of 2013 or later']))
            self.assertEqual(self.call(cpu, '--version').returncode, 0)
            self.assertIn('usage', self.call(cpu, 'run', '--help').stdout.lower())


if __name__ == '__main__':
    ROOT = os.path.abspath(sys.argv.pop(2))
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    if QEMU is None:
        print('skipped: qemu-x86_64 is not installed (make setup-full)')
        sys.exit(77)
    unittest.main(verbosity=2)
