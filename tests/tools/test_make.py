#!/usr/bin/env python3
"""The front door: what `make install` runs, with stand-ins for meson and ninja."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')


def calls(*args):
    """The tools that make runs in a build folder that exists already, in order."""
    with tempfile.TemporaryDirectory() as d:
        build, log = os.path.join(d, 'build'), os.path.join(d, 'log')
        os.mkdir(build)
        open(os.path.join(build, 'build.ninja'), 'w').close()
        for tool in ('meson', 'ninja'):
            with open(os.path.join(d, tool), 'w') as f:
                f.write('#!/bin/sh\necho %s "$@" >> %s\n' % (tool, log))
            os.chmod(f.name, 0o755)
        env = {k: v for k, v in os.environ.items() if k not in ('PREFIX', 'MAKEFLAGS', 'MAKELEVEL', 'MFLAGS')}
        env['PATH'] = d + ':' + env['PATH']
        subprocess.run(['make', '-C', ROOT, 'install', 'BUILD=' + build, *args], env=env, check=True, stdout=subprocess.DEVNULL)
        with open(log) as f:
            return [line.strip().replace(build, 'B') for line in f]


class Install(unittest.TestCase):
    def test_a_prefix_counts_for_a_build_that_exists(self):
        self.assertEqual(calls('PREFIX=/x'), ['ninja -C B', 'meson configure B --prefix=/x', 'ninja -C B',
                                              'meson install -C B --no-rebuild'])

    def test_without_one_the_build_keeps_its_own(self):
        self.assertEqual(calls(), ['ninja -C B', 'meson install -C B --no-rebuild'])


if __name__ == '__main__':
    if subprocess.run(['make', '--version'], stdout=subprocess.DEVNULL).returncode != 0:
        print('make is missing: skipped')
        sys.exit(77)
    unittest.main()
