#!/usr/bin/env python3
"""The sampling contract (docs/numerics.md) in plain Python with a full sort, as an oracle for src/engine/sampler.c.

usage: tools/oracle/sampler.py > tests/data/sampler_cases.json

Every f32 operation is one rounding: +, -, *, / are computed in f64 and rounded (53 bits are enough for that to be
exact rounding), fused ones in rationals. Standard library only; the output depends on nothing but this file."""
import json, math, random, struct
from fractions import Fraction

INF = math.inf


def f32(x):
    """Round to f32, denormals to 0."""
    if math.isinf(x) or x == 0: return x
    if abs(x) >= 2.0**128 - 2.0**103: return math.copysign(INF, x)
    y = struct.unpack('<f', struct.pack('<f', x))[0]
    return 0.0 if abs(y) < 2.0**-126 else y


def from_bits(u): return f32(struct.unpack('<f', struct.pack('<I', u))[0])
def bits(x): return struct.unpack('<I', struct.pack('<f', x))[0]


def fma(a, b, c):
    if any(math.isinf(v) for v in (a, b, c)): return a * b + c
    x = Fraction(a) * Fraction(b) + Fraction(c)
    if x == 0: return 0.0
    e = x.numerator.bit_length() - x.denominator.bit_length()
    if abs(x) < Fraction(2)**e: e -= 1
    q = Fraction(2)**(e - 23)
    return f32(float(round(x / q) * q))


h = float.fromhex


def exp(x):
    if x < h('-0x1.5d589ep+6'): return 0.0
    if x > h('0x1.62e42ep+6'): return INF
    n = f32(fma(x, h('0x1.715476p+0'), h('0x1.8p+23')) - h('0x1.8p+23'))
    r = fma(-n, h('0x1.7f7d1cp-20'), fma(-n, h('0x1.62e4p-1'), x))
    q = h('0x1.6a240ep-10')
    for c in ('0x1.123a1p-7', '0x1.5558f2p-5', '0x1.555492p-3', '0x1.fffffcp-2'): q = fma(q, r, h(c))
    p = f32(fma(f32(r * r), q, r) + 1.0)
    return math.ldexp(p, int(n))


LOG = [f32(c) for c in (-0.07634493708610535, 0.12761574983596802, -0.13160182535648346, 0.14201758801937103,
                        -0.16623356938362122, 0.20001226663589478, -0.2500081956386566, 0.3333333134651184)]


def log_core(f, e):
    z, p = f32(f * f), LOG[0]
    for c in LOG[1:]: p = fma(p, f, c)
    y = fma(e, h('0x1.7f7d1cp-20'), f32(p * f32(z * f)))
    return fma(e, h('0x1.62e4p-1'), f32(fma(-0.5, z, y) + f))


def split(x):
    """x = 2^e m with m from sqrt(1/2) (as an f32) up."""
    m, e = math.frexp(x)
    if m < from_bits(0x3f3504f3): m, e = m * 2, e - 1
    return m, e


def log(x):
    if x == 0: return -INF
    if x == INF: return INF
    m, e = split(x)
    return log_core(m - 1.0, float(e))


def log1p(x):
    if x == -1: return -INF
    u = f32(1.0 + x)
    lost = Fraction(1) + Fraction(x) - Fraction(u)
    m, e = split(u)
    f = fma(float(lost), 2.0**-e, m - 1.0)
    return log_core(f, float(e))


def philox(counter, key):
    c, k = list(counter), list(key)
    M = 0xffffffff
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & M, (a >> 32) ^ c[3] ^ k[1], a & M]
        k = [(k[0] + 0x9E3779B9) & M, (k[1] + 0xBB67AE85) & M]
    return c


def noise(seed, position, choice, i):
    r = philox([i >> 2, position + 1, choice, 0], [seed & 0xffffffff, seed >> 32])[i & 3]
    v = fma(float(r >> 16), 2.0**-16, f32(f32(float(r & 0xffff) + 0.5) * 2.0**-32))
    return log(-log1p(-v))


def normaliser(z):
    top, s = max(z), [0.0] * 16
    for i, x in enumerate(z): s[i % 16] = f32(s[i % 16] + exp(f32(x - top)))
    for n in (8, 4, 2, 1):
        for i in range(n): s[i] = f32(s[i] + s[i + n])
    return f32(top + log(s[0]))


def sample(raw, o):
    """(id, survivors, logprob of id, [(id, logprob)])"""
    z = dict(enumerate(raw))
    masked = set(o.get('no_token', []))
    for i, b in o.get('bias', []): z[i] = f32(z[i] + b)
    prompt, answer = o.get('prompt', []), o.get('answer', [])
    r, pp, fp = o.get('repeat_penalty', 1.0), o.get('presence_penalty', 0.0), o.get('frequency_penalty', 0.0)
    for i in set(prompt) | set(answer): z[i] = f32(z[i] / r) if z[i] > 0 else f32(z[i] * r)
    for i in set(answer): z[i] = f32(f32(z[i] - pp) - f32(float(answer.count(i)) * fp))
    masked |= set(o.get('forbidden', []))
    ids = [i for i in z if i not in masked]
    t = o.get('temperature', 0.0)
    by = lambda i: (-z[i], i)
    if t < f32(1e-5):
        left = [min(ids, key=by)]
    else:
        for i in ids: z[i] = f32(z[i] / t)
        left = sorted(ids, key=by)
        if o.get('top_k', 0) > 0: left = left[:o['top_k']]
        e = {i: exp(f32(z[i] - z[left[0]])) for i in left}
        p = o.get('top_p', 1.0)
        if p < 1:
            w = [round(Fraction(e[i]) * 2**40) for i in left]
            total, cum = sum(w), 0
            for n, x in enumerate(w):
                cum += x
                if float(cum) >= p * float(total): break
            left = left[:n + 1]
        left = [i for i in left if e[i] >= o.get('min_p', 0.0)]
    if len(left) == 1:
        choice = left[0]
    else:
        g = {i: f32(z[i] - noise(o['seed'], o['position'], o['choice'], i)) for i in left}
        choice = min(left, key=lambda i: (-g[i], i))
    norm = normaliser(raw)
    best = sorted(range(len(raw)), key=lambda i: (-raw[i], i))[:o['top_logprobs']]
    return choice, len(left), f32(raw[choice] - norm), [(i, f32(raw[i] - norm)) for i in best]


def main():
    rnd = random.Random(20261130)
    gauss = lambda n, s: [f32(rnd.gauss(0, s)) for _ in range(n)]
    rows = [gauss(300, 3), [f32(round(rnd.gauss(0, 2) * 2) / 2) for _ in range(97)], gauss(1000, 1), [1.5] * 130,
            [f32(x) for x in (1e30, -1e30, 0.0, -0.0, 1e-30, -1e-30, 9e29, -2e30, 87.0, 88.0, 1e30)] * 4,
            gauss(5, 2), gauss(2500, 2.5), [2.0], [f32(math.ldexp(x, -120)) for x in gauss(70, 1)],
            [f32(20.0 - 0.01 * i) for i in range(1500)], [f32(0.0001 * (i % 7)) for i in range(700)]]
    cases = []
    for n in range(260):
        row = n % len(rows)
        raw = rows[row]
        v = len(raw)
        pick = lambda k: [rnd.randrange(v) for _ in range(k)]
        o = {'row': row, 'seed': rnd.choice([0, 1, rnd.getrandbits(53), rnd.getrandbits(62)]),
             'position': rnd.choice([0, 1, rnd.randrange(1 << 24)]), 'choice': rnd.choice([0, 0, 1, 7]),
             'top_logprobs': rnd.choice([0, 1, 5, 20])}
        o['top_logprobs'] = min(o['top_logprobs'], v)
        if rnd.random() < 0.9: o['temperature'] = f32(rnd.choice([0.5, 0.7, 0.8, 1.0, 1.3, 2.0, 1e-5, 9.9e-6]))
        if rnd.random() < 0.5: o['top_k'] = rnd.choice([-1, 0, 1, 2, 5, 20, 40, 63, 64, v - 1, v, v + 1])
        if rnd.random() < 0.5: o['top_p'] = f32(rnd.choice([0.0, 0.01, 0.5, 0.9, 0.95, 0.999999, 1.0]))
        if rnd.random() < 0.3: o['min_p'] = f32(rnd.choice([0.0, 0.01, 0.05, 0.5, 1.0]))
        if rnd.random() < 0.3: o['bias'] = [[i, f32(rnd.uniform(-5, 5))] for i in pick(rnd.randrange(1, 6))]
        if rnd.random() < 0.4:
            o['prompt'], o['answer'] = pick(rnd.randrange(0, 20)), pick(rnd.randrange(0, 20))
            if rnd.random() < 0.7: o['repeat_penalty'] = f32(rnd.choice([1.1, 1.3, 0.8]))
            if rnd.random() < 0.5: o['presence_penalty'] = f32(rnd.uniform(-1, 1))
            if rnd.random() < 0.5: o['frequency_penalty'] = f32(rnd.uniform(-1, 1))
        if rnd.random() < 0.3 and v > 8: o['no_token'] = sorted(set(pick(rnd.randrange(1, v // 3)) + [v - 1]))
        if rnd.random() < 0.3 and v > 8:
            allowed = set(pick(rnd.randrange(1, 30))) | {rnd.choice([i for i in range(v) if i not in o.get('no_token', [])])}
            o['forbidden'] = [i for i in range(v) if i not in allowed] if v < 400 else sorted(set(pick(40)))
        choice, survivors, lp, top = sample(raw, o)
        o['want'] = {'id': choice, 'survivors': survivors, 'logprob': bits(lp), 'top': [[i, bits(x)] for i, x in top]}
        cases.append(o)
    out = ['{"rows": [']
    out += [' "' + ''.join('%08x' % bits(x) for x in row) + '"' + (',' if i + 1 < len(rows) else '') for i, row in enumerate(rows)]
    out += ['], "cases": [']
    out += [' ' + json.dumps(c) + (',' if i + 1 < len(cases) else '') for i, c in enumerate(cases)]
    out += [']}']
    print('\n'.join(out))


main()
