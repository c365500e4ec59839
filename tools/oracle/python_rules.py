#!/usr/bin/env python3
"""Compares single Python rules of the template interpreter with this Python, on many values: the text of floats (every
power of two, random bits, short decimals), rounding, case and classes of every character.

usage: python_rules.py HARNESS"""
import json
import math
import random
import struct
import subprocess
import sys
import unicodedata

rng = random.Random(5)


def ask(harness, source, values):
    line = json.dumps({"template": source, "context": {"v": values}}) + "\n"
    out = json.loads(subprocess.run([harness], input=line, capture_output=True, text=True).stdout)
    if "error" in out:
        sys.exit(f"{source}: {out['error']}")
    return out["text"].split("\x1e")[:-1]


def compare(harness, name, source, values, expected):
    bad = []
    for i in range(0, len(values), 2000):
        got = ask(harness, "{% for x in v %}" + source + "\x1e{% endfor %}", values[i:i + 2000])
        bad += [(v, g, e) for v, g, e in zip(values[i:i + 2000], got, map(expected, values[i:i + 2000])) if g != e]
    print(f"{name}: {len(values)} values, {len(bad)} differ {bad[:4] if bad else ''}")
    return [b[0] for b in bad]


def main():
    h = sys.argv[1]
    floats = [2.0 ** e for e in range(-1074, 1024)] + [float(f"{rng.randrange(10 ** rng.randrange(1, 17))}e{rng.randrange(-30, 30)}") for _ in range(6000)]
    floats += [x for x in (struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0] for _ in range(12000)) if math.isfinite(x)]
    failed = compare(h, "repr of floats", "{{ x }}", floats, repr)
    small = [x for x in floats if 1e-20 < abs(x) < 1e20] + [k / 8 for k in range(-200, 200)] + [k / 1000 for k in range(0, 3000, 5)]
    for n in (0, 1, 2, 3, 7, -1, -3):
        failed += compare(h, f"round to {n}", "{{ x | round(%d) }}" % n, small, lambda x, n=n: repr(round(x, n)))
    for f in ("%.3f", "%e", "%g", "%12.4g|", "%.0f", "%+.2e"):
        failed += compare(h, f, "{{ '%s' %% x }}" % f, small[:3000], lambda x, f=f: f % x)
    for f in ("{:.3f}", "{:,.2f}", "{:.3}", "{:e}", "{:g}", "{:.4g}", "{:>12.5}|", "{:.1%}", "{}", "{:08.2f}", "{:.12}"):
        failed += compare(h, f, "{{ '%s'.format(x) }}" % f, small[:3000], lambda x, f=f: f.format(x))
    ints = [rng.randrange(-10 ** rng.randrange(1, 18), 10 ** rng.randrange(1, 18)) for _ in range(1500)]
    for f in ("{:,}", "{:x}", "{:08d}", "{:+}", "{:b}", "{:_}", "{:>20}", "{:#x}", "{:e}"):
        failed += compare(h, f, "{{ '%s'.format(x) }}" % f, ints, lambda x, f=f: f.format(x))
    for f in ("%5d", "%-8d|", "%x", "%#X", "%o", "%+d", "%08d", "%.5d", "% d"):
        failed += compare(h, f, "{{ '%s' %% x }}" % f, ints, lambda x, f=f: f % x)
    texts = [t for t in ("".join(rng.choice("0123456789+-_.eExXinfa ١\u00a0") for _ in range(rng.randrange(1, 8))) for _ in range(20000))]

    def to_int(t):
        try:
            return str(int(t))
        except ValueError:
            try:
                return str(int(float(t)))
            except (ValueError, OverflowError):
                return "0"

    def to_float(t):
        try:
            return str(float(t))
        except ValueError:
            return "0.0"

    texts = [t for t in texts if len(to_int(t)) < 19]
    failed += compare(h, "int of texts", "{{ x | int }}", texts, to_int)
    failed += compare(h, "float of texts", "{{ x | float }}", texts, to_float)
    chars = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF and c != 0x1E and unicodedata.category(chr(c)) != "Cn"]
    new = set(compare(h, "repr of characters", "{{ [x] }}", chars, lambda c: repr([c])))
    for m in ("upper", "lower", "title", "capitalize", "swapcase", "casefold"):
        new |= set(compare(h, m, "{{ x.%s() }}" % m, chars, lambda c, m=m: getattr(c, m)()))
    for m in ("isalpha", "isdigit", "isdecimal", "isnumeric", "isalnum", "isspace", "isupper", "islower", "istitle", "isprintable", "isidentifier"):
        new |= set(compare(h, m, "{{ x.%s() }}" % m, chars, lambda c, m=m: str(getattr(c, m)())))
    words = ["".join(rng.choice("aΣσ'. ßA\u0301ǅ1-ﬁİ") for _ in range(rng.randrange(1, 9))) for _ in range(8000)]
    for m in ("upper", "lower", "title", "capitalize", "swapcase", "istitle", "islower", "isupper"):
        failed += compare(h, m + " of words", "{{ x.%s() }}" % m, words, lambda c, m=m: str(getattr(c, m)()))
    print("characters that differ somewhere:", " ".join(f"U+{ord(c):04X}" for c in sorted(new)[:60]), len(new))
    sys.exit(1 if failed else 0)


main()
