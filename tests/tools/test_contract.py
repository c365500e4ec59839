#!/usr/bin/env python3
"""The program against tools/oracle/contract.py, which executes docs/numerics.md on its own: every bit of the logits. Needs numpy: that of
this Python, else of a virtual environment (made from PyPI the first time) under $VERBATIM_TEST_VENV or build/contract-venv beside
the program; skipped (exit 77) where neither is to be had.

usage: test_contract.py PROGRAM SOURCE_ROOT"""
import os, subprocess, sys, tempfile

PROGRAM, ROOT = map(os.path.abspath, sys.argv[1:3])
ORACLE = os.path.join(ROOT, 'tools/oracle')
SHARED = os.environ.get('VERBATIM_SHARED') or os.path.join(ROOT, '../shared')


def has_numpy(python): return os.path.exists(python) and subprocess.run([python, '-c', 'import numpy'], capture_output=True).returncode == 0


def python_with_numpy():
    if has_numpy(sys.executable): return sys.executable
    venv = os.environ.get('VERBATIM_TEST_VENV') or os.path.join(os.path.dirname(PROGRAM), 'contract-venv')
    python = os.path.join(venv, 'bin', 'python')
    try:
        if not os.path.exists(python): subprocess.run([sys.executable, '-m', 'venv', venv], check=True, capture_output=True)
        if not has_numpy(python):
            subprocess.run([python, '-m', 'pip', 'install', '-q', 'numpy'], check=True, capture_output=True, timeout=300)
    except (subprocess.SubprocessError, OSError) as e:
        print('skipped: no numpy, and no virtual environment with it: %s' % e)
        sys.exit(77)
    return python


def main():
    python, failed = python_with_numpy(), 0

    def check(*options, status=0):
        nonlocal failed
        done = subprocess.run([python, os.path.join(ORACLE, 'contract.py'), '--verbatim', PROGRAM, *options], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        ok = done.returncode == status and (status == 0 or 'logits differ' in done.stdout)  # 1 is also what an exception gives
        failed += not ok
        print('%s %s' % ('ok    ' if ok else 'FAILED', done.stdout.strip() or 'exit %d' % done.returncode), flush=True)

    check('--selftest')
    atto = os.path.join(ROOT, 'models/atto')
    check('--golden', '0', atto)
    check('--tokens', '9', '--new', '3', '--activations', '16', atto)
    check('--tokens', '6', '--new', '1', '--plant', 'scale-late', atto, status=1)
    with tempfile.TemporaryDirectory() as tmp:
        for kind in ('q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4'):
            path = os.path.join(tmp, kind + '.gguf')
            subprocess.run([sys.executable, os.path.join(ORACLE, 'random_gguf.py'), kind, path], check=True)
            check('--tokens', '12', '--new', '2', path)
        for kind in ('bf16', 'q4_0', 'q6_k'):
            path = os.path.join(tmp, kind + '-wild.gguf')
            subprocess.run([sys.executable, os.path.join(ORACLE, 'random_gguf.py'), kind, path, '2', 'wild'], check=True)
            check('--tokens', '12', '--new', '2', path)
            if kind == 'bf16': check('--tokens', '12', '--new', '2', '--plant', 'underflow', path, status=1)
    tiny = os.path.join(SHARED, 'fixtures/tiny')
    if os.path.isdir(tiny):
        check('--golden', '1', os.path.join(SHARED, 'models/atto'))
        check('--tokens', '1100', '--args', '--ctx 2048', os.path.join(tiny, 'qwen35'))
        for name in ('llama-yarn', 'llama-rope3/model.gguf', 'qwen2', 'qwen3', 'qwen35-moe', 'qwen35-moe/model.gguf'):
            check('--tokens', '70', os.path.join(tiny, name))
        check('--tokens', '70', '--plant', 'block', os.path.join(tiny, 'qwen3'), status=1)
    else: print('not run: the shared models (VERBATIM_SHARED)')
    return failed > 0


if __name__ == '__main__': sys.exit(main())
