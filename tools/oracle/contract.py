#!/usr/bin/env python3
"""The numerics contract (docs/numerics.md) executed a second time, to compare every bit of the logits.

usage: tools/oracle/contract.py [options] MODEL
       tools/oracle/contract.py --selftest

MODEL is a folder (config.json, *.safetensors; Qwen 3.5 dense or with experts, Llama, Qwen 2, Qwen 3; bf16 or MLX affine)
or a GGUF file (llama, qwen2, qwen3, qwen35, qwen35moe; every type of docs/formats.md).

  --verbatim PROGRAM    the program to compare with (build/verbatim)
  --activations 8|16    8
  --ids 1,2,3           the prompt; default: --tokens ids drawn at random
  --tokens N            24
  --seed N              seed of the random ids (1)
  --new N               tokens that the program decodes after the prompt (4)
  --args "..."          more options for the program, "--draft none --threads 1"
  --temp T              sampled with temperature T and seed --seed instead of greedily; the oracle draws every token itself
  --golden N            prompt N (0..3) of tests/golden/test_invariance.c, and its sampling; the hash must be one of those committed
  --plant KIND          plants a fault in the oracle; the check must then fail: --plant help lists them

The program runs the prompt and decodes; its rows (all prompt positions, then the decoded ones) are compared with the oracle's,
and so are its tokens. Exit 0: every bit is equal, and so is logits_sha256. 1: the first difference is named. 2: usage.
3: the program failed.

This file was written from the pages alone, not from the C sources, and must stay so: where it and the program differ, one of
them or docs/numerics.md is wrong. It shares no code and no method with the program: numpy without FTZ, f32 operations done in f64
and rounded once, fma by an exact product, an exact sum and rounding to odd. Needs numpy."""
import argparse, hashlib, json, math, mmap, os, random, struct, subprocess, sys, tempfile
from fractions import Fraction

try:
    import numpy as np
except ImportError:
    print('contract.py: numpy is missing', file=sys.stderr)
    sys.exit(77)

np.seterr(all='ignore')
F, D, I64 = np.float32, np.float64, np.int64
PLANT = None
FAULTS = {
    'underflow': 'denormals are kept',
    'bf16-truncate': 'to_bf16 truncates',
    'norm-divide': 'rms norm: x / sqrt(mean + eps) instead of x * (1 / sqrt(mean + eps))',
    'sum-order': 'the sum over a row folds neighbours first',
    'linear-chain': 'linear_bf16 runs one chain of 32 instead of two of 16',
    'scale-late': 'linear_q multiplies (dot * scale) * d instead of dot * (scale * d)',
    'slice': 'linear_q runs one chain over all of K',
    'span': 'attention folds all blocks in one chain, without spans',
    'block': 'attention works on blocks of 32 keys',
    'p-f32': 'attention does not round p to bf16',
    'delta-fma': 'S = k * delta rounded, then added',
    'exp-add': 'exp adds 1 before the last fma',
    'rope-plain': 'rope without fma',
}

# ---- f32 with FTZ and DAZ --------------------------------------------------------------------------------------------

# A result is tiny when its rounding to 24 bits, the exponent unbounded, is below 2^-126.
TINY = 2.0**-126 - 2.0**-151


def rnd(x):
    """f64 (exact, or rounded to odd, or one operation on f32 operands) to f32, tiny results to a signed zero."""
    y = np.asarray(x, D).astype(F)
    if PLANT == 'underflow': return y
    small = np.abs(x) < TINY
    return np.where(small, np.copysign(F(0), y), y) if small.any() else y


def daz(x): return rnd(np.asarray(x, F).astype(D))
def add(a, b): return rnd(np.add(a, b, dtype=D))
def sub(a, b): return rnd(np.subtract(a, b, dtype=D))
def mul(a, b): return rnd(np.multiply(a, b, dtype=D))
def div(a, b): return rnd(np.divide(a, b, dtype=D))
def sqrt(a): return rnd(np.sqrt(a, dtype=D))


def to_odd(s, e):
    """s rounded to nearest with error e -> rounded to odd."""
    bits = np.array(s, D).view(I64)
    inexact = ((e > 0) | (e < 0)) & ((bits & 1) == 0)
    step = np.where((e > 0) == (s > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(D)


def fma(a, b, c):
    p = np.multiply(a, b, dtype=D)  # exact: 48 bits
    c = np.asarray(c, D)
    s = p + c
    t = s - p
    e = (p - (s - t)) + (c - t)
    return rnd(to_odd(np.asarray(s), np.asarray(e)))


def to_bf16(x):
    """The f32 whose upper half is the bf16."""
    x = np.asarray(x, F)
    u = x.view(np.uint32)
    r = u if PLANT == 'bf16-truncate' else u + np.uint32(0x7fff) + ((u >> np.uint32(16)) & np.uint32(1))
    r = r & np.uint32(0xffff0000)
    r = np.where(np.abs(x) < F(2.0**-126), u & np.uint32(0x80000000), r)
    return np.where(np.isnan(x), np.uint32(0x7fc00000), r).astype(np.uint32).view(F)


# ---- f64: constants at load, sine and cosine ------------------------------------------------------------------------


def two_sum(a, b):
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def split(a):
    c = 134217729.0 * a
    h = c - (c - a)
    return h, a - h


def fma64(a, b, c):
    """Correctly rounded for operands far from the ends of the range: exact product and sums, then rounding to odd."""
    a, b, c = (np.asarray(v, D) for v in (a, b, c))
    ph = a * b
    (ah, al), (bh, bl) = split(a), split(b)
    pl = ((ah * bh - ph) + ah * bl + al * bh) + al * bl
    uh, ul = two_sum(c, pl)
    th, tl = two_sum(ph, uh)
    v, e = two_sum(tl, ul)
    return th + to_odd(np.asarray(v), np.asarray(e))


# ---- elementary functions ---------------------------------------------------------------------------------------------

h = float.fromhex
LN2_HI, LN2_LO = F(h('0x1.62e4p-1')), F(h('0x1.7f7d1cp-20'))


def scale2(x, n):
    """x * 2^n where the result is normal."""
    return np.ldexp(np.asarray(x, D), np.asarray(n).astype(np.int64)).astype(F)


def exp(x):
    x = np.asarray(x, F)
    magic = F(h('0x1.8p+23'))
    inside = (x >= F(h('-0x1.5d589ep+6'))) & (x <= F(h('0x1.62e42ep+6')))
    v = np.where(inside, x, F(0))
    n = sub(fma(v, F(h('0x1.715476p+0')), magic), magic)
    r = fma(-n, LN2_LO, fma(-n, LN2_HI, v))
    q = F(h('0x1.6a240ep-10'))
    for c in ('0x1.123a1p-7', '0x1.5558f2p-5', '0x1.555492p-3', '0x1.fffffcp-2'): q = fma(q, r, F(h(c)))
    if PLANT == 'exp-add': p = fma(mul(r, r), q, add(r, F(1)))
    else: p = add(fma(mul(r, r), q, r), F(1))
    y = scale2(p, n)
    return np.where(inside, y, np.where(np.isnan(x), x, np.where(x > 0, F(np.inf), F(0)))).astype(F)


LOG_P = [F(c) for c in (-0.07634493708610535, 0.12761574983596802, -0.13160182535648346, 0.14201758801937103,
                        -0.16623356938362122, 0.20001226663589478, -0.2500081956386566, 0.3333333134651184)]
SQRT_HALF = np.uint32(0x3f3504f3).view(F)


def frexp_half(x):
    """x = 2^e m with m from SQRT_HALF up to twice that."""
    m, e = np.frexp(x)
    low = m < SQRT_HALF
    return np.where(low, m * F(2), m).astype(F), np.where(low, e - 1, e)


def log_core(f, e):
    e = e.astype(F)
    z = mul(f, f)
    p = LOG_P[0]
    for c in LOG_P[1:]: p = fma(p, f, c)
    y = fma(e, LN2_LO, mul(p, mul(z, f)))
    y = add(fma(F(-0.5), z, y), f)
    return fma(e, LN2_HI, y)


def log(x):
    x = daz(x)
    good = (x > 0) & (x < np.inf)
    m, e = frexp_half(np.where(good, x, F(1)))
    y = log_core(sub(m, F(1)), e)
    return np.where(good, y, np.where(x == 0, F(-np.inf), np.where(x > 0, x, F(np.nan)))).astype(F)


def log1p(x):
    x = daz(x)
    good = (x > -1) & (x < np.inf)
    v = np.where(good, x, F(0))
    u = add(F(1), v)
    t = sub(u, F(1))
    lost = add(sub(F(1), sub(u, t)), sub(v, t))
    m, e = frexp_half(u)
    f = fma(lost, scale2(np.ones_like(v), -np.minimum(e, 126)), sub(m, F(1)))
    y = log_core(f, e)
    return np.where(good, y, np.where(x == -1, F(-np.inf), np.where(x > 0, x, F(np.nan)))).astype(F)


def sigmoid(x): return div(F(1), add(F(1), exp(-x)))
def silu(x): return div(x, add(F(1), exp(-x)))
def softplus(x): return np.where(x > F(20), x, log1p(exp(x))).astype(F)


LN2_HI64, LN2_LO64 = h('0x1.62e42fefap-1'), h('0x1.cf79abc9e3b3ap-40')
MAGIC64 = h('0x1.8p+52')


def exp64(x):
    x = np.asarray(x, D)
    n = fma64(x, h('0x1.71547652b82fep+0'), MAGIC64) - MAGIC64
    r = fma64(-n, LN2_LO64, fma64(-n, LN2_HI64, x))
    q = 1.0 / math.factorial(13)
    for k in range(12, 1, -1): q = fma64(q, r, 1.0 / math.factorial(k))
    return np.ldexp(fma64(r * r, q, r) + 1.0, n.astype(np.int64))


def log64(x):
    m, e = np.frexp(np.asarray(x, D))
    low = m < h('0x1.6a09e667f3bcdp-1')
    m, e = np.where(low, m * 2, m), np.where(low, e - 1, e).astype(D)
    f = m - 1.0
    s = f / (2.0 + f)
    w = s * s
    q = 2.0 / 23.0
    for k in range(21, 1, -2): q = fma64(q, w, 2.0 / k)
    y = fma64(e, LN2_LO64, s * fma64(q, w, -f))
    return fma64(e, LN2_HI64, y + f)


def sincos(x):
    d = np.asarray(x, F).astype(D)
    n = fma64(d, h('0x1.45f306dc9c883p-1'), MAGIC64) - MAGIC64
    r = fma64(-n, h('0x1.1a62633145c07p-54'), fma64(-n, h('0x1.921fb54442d18p+0'), d))
    w = r * r
    s, c = -1.0 / math.factorial(15), 1.0 / math.factorial(16)
    for k in range(6, 0, -1): s = fma64(s, w, (-1)**k / math.factorial(2 * k + 1))
    for k in range(7, 0, -1): c = fma64(c, w, (-1)**k / math.factorial(2 * k))
    s, c = rnd(fma64(s * w, r, r)), rnd(fma64(c, w, 1.0))
    q = n.astype(np.int64) & 3
    sine = np.choose(q, [s, c, -s, -c])
    cosine = np.choose(q, [c, -s, -c, s])
    bad = ~(np.abs(x) <= 2.0**30)
    return np.where(bad, F(np.nan), sine).astype(F), np.where(bad, F(np.nan), cosine).astype(F)


# ---- row-wise ---------------------------------------------------------------------------------------------------------


def fold16(s):
    """16 partial sums on the last axis to one."""
    if PLANT == 'sum-order':
        while s.shape[-1] > 1: s = add(s[..., 0::2], s[..., 1::2])
        return s[..., 0]
    n = 8
    while n:
        s = add(s[..., :n], s[..., n:2 * n])
        n //= 2
    return s[..., 0]


def by16(x, step):
    s = np.zeros(x.shape[:-1] + (16,), F)
    for i in range(0, x.shape[-1], 16):
        w = min(16, x.shape[-1] - i)
        s[..., :w] = step(x[..., i:i + w], s[..., :w])
    return fold16(s)


def row_sum(x): return by16(x, lambda v, s: fma(v, F(1), s))
def square_sum(x): return by16(x, lambda v, s: fma(v, v, s))


def rms(x, w, eps):
    v = add(div(square_sum(x), F(x.shape[-1])), F(eps))
    if PLANT == 'norm-divide': y = div(x, sqrt(v)[..., None])
    else: y = mul(x, div(F(1), sqrt(v))[..., None])
    return mul(y, w)


def l2(x): return mul(x, div(F(1), sqrt(add(square_sum(x), F(1e-6))))[..., None])


# ---- linear layers ----------------------------------------------------------------------------------------------------

BUDGET = 1 << 17  # elements of a temporary


def dot_bf16(x, wt):
    """x [..., rows, K] and wt [..., K, N], f32 that hold bf16, in the order of linear_bf16; [..., rows, N]."""
    k = x.shape[-1]
    pad = -k % 32
    if pad:
        x = np.concatenate([x, np.zeros(x.shape[:-1] + (pad,), F)], -1)
        wt = np.concatenate([wt, np.zeros(wt.shape[:-2] + (pad, wt.shape[-1]), F)], -2)
    # Products of two bf16 are exact in f32. Where none, and so no sum of them, can be tiny, and none overflows, plain f32 is
    # the same as fma with FTZ; otherwise f64 (a product has 16 bits, so that rounding twice is harmless).
    ends = []
    for v in (x, wt):
        m = np.abs(v[v != 0])
        ends.append((float(m.min()), float(m.max())) if m.size else (1.0, 1.0))
    fast = ends[0][0] * ends[1][0] > 2.0**-90 and ends[0][1] * ends[1][1] < 2.0**100
    shape = np.broadcast_shapes(x.shape[:-2], wt.shape[:-2]) + (x.shape[-2], wt.shape[-1])
    acc = np.zeros(shape, F)
    for b in range(0, x.shape[-1], 32):
        chains = []
        for first in (0, 1):
            s = np.zeros(shape, F)
            for i in range(b + first, b + 32, 2):
                if fast: s += x[..., i:i + 1] * wt[..., i:i + 1, :]
                else: s = rnd(s.astype(D) + np.multiply(x[..., i:i + 1], wt[..., i:i + 1, :], dtype=D))
            chains.append(s)
        if PLANT == 'linear-chain':
            s = np.zeros(shape, F)
            for i in range(b, b + 32): s += x[..., i:i + 1] * wt[..., i:i + 1, :]
            acc = add(acc, s)
        else:
            acc = acc + (chains[0] + chains[1]) if fast else add(acc, add(chains[0], chains[1]))
    return acc


class Bf16:
    """A matrix [N, K] of a bf16 linear layer."""

    def __init__(self, w):
        self.t = np.ascontiguousarray(daz(to_bf16(w)).T)
        self.n, self.k = self.t.shape[1], self.t.shape[0]

    def rows(self, a, b):
        m = object.__new__(Bf16)
        m.t = np.ascontiguousarray(self.t[:, a:b])
        m.n, m.k = b - a, self.k
        return m

    def permuted(self, order):
        m = object.__new__(Bf16)
        m.t, m.n, m.k = np.ascontiguousarray(self.t[:, order]), self.n, self.k
        return m

    def embed(self, ids): return np.ascontiguousarray(self.t[:, ids].T)

    def linear(self, x, bits):
        x = daz(to_bf16(x))
        out = np.empty((x.shape[0], self.n), F)
        step = max(16, BUDGET // max(1, x.shape[0]))
        for j in range(0, self.n, step): out[:, j:j + step] = dot_bf16(x, self.t[:, j:j + step])
        return out


def quantise(x, group, bits):
    """x [T, K] to (a, d): integers [T, K] and f32 [T, K / group]."""
    top = 127 if bits == 8 else 32512
    x = x.reshape(x.shape[0], -1, group)
    amax = np.abs(x).max(-1)
    d, idv = div(amax, F(top)), div(F(top), amax)
    a = np.rint(mul(x, idv[..., None]))
    small, bad = amax < F(2.0**-64), ~np.isfinite(x).all(-1)
    d = np.where(bad, F(np.nan), np.where(small, F(0), d)).astype(F)
    a = np.where((bad | small)[..., None], 0, a)
    assert np.abs(a).max() <= top
    return a.reshape(a.shape[0], -1), d


class Quant:
    """A matrix [N, K] of codes; scale and bias [N, K / group] f32."""

    def __init__(self, codes, scale, bias, group):
        self.codes, self.scale, self.group = codes, daz(scale), group
        self.bias = None if bias is None else daz(bias)
        self.n, self.k = codes.shape
        assert self.k % 32 == 0 and self.k % group == 0

    def rows(self, a, b):
        return Quant(self.codes[a:b], self.scale[a:b], None if self.bias is None else self.bias[a:b], self.group)

    def permuted(self, order):
        return Quant(self.codes[order], self.scale[order], None if self.bias is None else self.bias[order], self.group)

    def embed(self, ids):
        c = self.codes[ids].astype(F)
        s = np.repeat(self.scale[ids], self.group, axis=1)
        return mul(c, s) if self.bias is None else fma(c, s, np.repeat(self.bias[ids], self.group, axis=1))

    def linear(self, x, bits):
        act = min(max(self.group, 32), 64)
        a, d = quantise(x, act, bits)
        seg = min(self.group, act)
        cut = 512
        if PLANT == 'slice': cut = self.k
        out = np.empty((x.shape[0], self.n), F)
        step = max(16, BUDGET // max(1, x.shape[0]))
        for j in range(0, self.n, step):
            n = min(step, self.n - j)
            total = None
            for first in range(0, self.k, cut):
                acc = np.zeros((x.shape[0], n), F)
                for k in range(first, min(first + cut, self.k), seg):
                    ak = a[:, k:k + seg]
                    dot = (ak @ self.codes[j:j + n, k:k + seg].T.astype(D)).astype(F)  # integers: exact in f64
                    dk = d[:, k // act][:, None]
                    sc = self.scale[j:j + n, k // self.group][None]
                    if PLANT == 'scale-late': acc = fma(mul(dot, sc), dk, acc)
                    else: acc = fma(dot, mul(sc, dk), acc)
                    if self.bias is not None:
                        total_a = ak.sum(-1).astype(F)[:, None]
                        acc = fma(self.bias[j:j + n, k // self.group][None], mul(dk, total_a), acc)
                total = acc if total is None else add(total, acc)
            out[:, j:j + n] = total
        return out


# ---- attention --------------------------------------------------------------------------------------------------------


def rope_apply(x, cos, sin):
    """x [T, heads, D]; cos, sin [T, R / 2]."""
    r = cos.shape[1]
    a, b = x[..., :r], x[..., r:2 * r]
    c, s = cos[:, None], sin[:, None]
    if PLANT == 'rope-plain': y, z = sub(mul(a, c), mul(b, s)), add(mul(a, s), mul(b, c))
    else: y, z = fma(-b, s, mul(a, c)), fma(a, s, mul(b, c))
    return np.concatenate([y, z, x[..., 2 * r:]], -1)


class Running:
    """m, l, o of every row, and the rows that have seen a key."""

    def __init__(self, rows, dim):
        self.m, self.l, self.o = np.zeros(rows, F), np.zeros(rows, F), np.zeros((rows, dim), F)
        self.seen = np.zeros(rows, bool)

    def take(self, rows, m, l, o):
        """Copies or folds what belongs to `rows` (ascending indices)."""
        first = ~self.seen[rows]
        new, old = rows[first], rows[~first]
        self.m[new], self.l[new], self.o[new] = m[first], l[first], o[first]
        self.seen[new] = True
        m, l, o = m[~first], l[~first], o[~first]
        top = np.maximum(self.m[old], m)
        alpha, beta = exp(sub(self.m[old], top)), exp(sub(m, top))
        self.l[old] = fma(self.l[old], alpha, mul(l, beta))
        self.o[old] = fma(self.o[old], alpha[:, None], mul(o, beta[:, None]))
        self.m[old] = top


def attention(q, k, v, window):
    """q [T, Hq, D], k and v [T, Hkv, D] after norm and rope, f32; o / l as [T, Hq, D]. All positions from 0 on."""
    t, hq, dim = q.shape
    hkv = k.shape[1]
    q = daz(to_bf16(q))
    k, v = (daz(np.where(np.isfinite(to_bf16(x)), to_bf16(x), F(0))) for x in (k, v))
    scale = F(1.0 / math.sqrt(dim))
    size = 32 if PLANT == 'block' else 64
    span = 1024 if PLANT != 'span' else 1 << 30
    low = np.maximum(np.arange(t) - (window or t) + 1, 0)
    out = np.empty_like(q)
    ones = np.ones((size, 1), F)
    for head in range(hq):
        kv = head // (hq // hkv)
        total = Running(t, dim)
        for first in range(0, t, span):
            part = Running(t, dim)
            for b in range(first, min(first + span, t), size):
                keys, vals = np.zeros((size, dim), F), np.zeros((size, dim), F)
                n = min(size, t - b)
                keys[:n], vals[:n] = k[b:b + n, kv], v[b:b + n, kv]
                rows = np.flatnonzero((np.arange(t) >= b) & (low < b + size))
                at = np.arange(b, b + size)[None]
                visible = (at <= rows[:, None]) & (at >= low[rows][:, None])
                s = mul(dot_bf16(q[rows, head], np.ascontiguousarray(keys.T)), scale)
                m = np.where(visible, s, F(-np.inf)).max(-1)
                p = exp(sub(s, m[:, None]))
                if PLANT != 'p-f32': p = to_bf16(p)
                p = np.where(visible, p, F(0))
                part.take(rows, m, dot_bf16(p, ones)[:, 0], dot_bf16(p, vals))
            rows = np.flatnonzero(part.seen)
            total.take(rows, part.m[rows], part.l[rows], part.o[rows])
        out[:, head] = add(div(total.o, total.l[:, None]), F(0))
    return out


# ---- files ------------------------------------------------------------------------------------------------------------


def widen_bf16(u): return (u.astype(np.uint32) << np.uint32(16)).view(F)


def affine_codes(raw, bits, k):
    """Rows of bytes to codes [n, k]: element i in bits i*b .. of the row."""
    if bits == 8: return raw.astype(np.int16)
    stream = np.unpackbits(raw, axis=1, bitorder='little').reshape(raw.shape[0], k, bits)
    out = np.zeros(stream.shape[:2], np.int16)
    for b in range(bits): out |= stream[:, :, b].astype(np.int16) << b
    return out


class Folder:
    """A model folder; names are those of the stock text-only model, without the leading `model.`."""

    def __init__(self, path):
        with open(os.path.join(path, 'config.json'), encoding='utf-8') as f: self.config = json.load(f)
        self.text = self.config.get('text_config', self.config)
        self.quant = self.config.get('quantization') or {}
        self.tensors = {}
        for name in sorted(os.listdir(path)):
            if not name.endswith('.safetensors') or name.startswith(('mtp', 'expected')): continue
            with open(os.path.join(path, name), 'rb') as f: data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            n = struct.unpack('<Q', data[:8])[0]
            for key, t in json.loads(data[8:8 + n]).items():
                if key == '__metadata__': continue
                a, b = t['data_offsets']
                self.tensors[key] = t['dtype'], t['shape'], memoryview(data)[8 + n + a:8 + n + b]
        found = [p for p in ('model.language_model.', 'language_model.model.', 'model.') if p + 'embed_tokens.weight' in self.tensors]
        self.prefix = found[0]
        head = 'language_model.lm_head' if self.prefix == 'language_model.model.' else 'lm_head'
        self.head = head if head + '.weight' in self.tensors else None
        conv = [t[1] for key, t in self.tensors.items() if key.endswith('conv1d.weight')]
        self.raw = any(shape[-1] != 1 for shape in conv)  # not an MLX conversion: norms hold w, not 1 + w
        self.modulo = False

    def full(self, name): return self.head if name == 'lm_head' else self.prefix + name

    def has(self, name):
        full = self.full(name)
        return full is not None and (full in self.tensors or full + '.weight' in self.tensors)

    def array(self, full):
        kind, shape, data = self.tensors[full]
        if kind == 'BF16': return widen_bf16(np.frombuffer(data, '<u2')).reshape(shape)
        if kind in ('F32', 'F16'): return np.frombuffer(data, '<f4' if kind == 'F32' else '<f2').astype(F).reshape(shape)
        if kind == 'U32': return np.frombuffer(data, np.uint8).reshape(shape[:-1] + [shape[-1] * 4])
        raise ValueError(full + ': dtype ' + kind)

    def vector(self, name): return daz(self.array(self.full(name)))

    def norm(self, name, zero_centred):
        w = self.vector(name + '.weight')
        return add(F(1), w) if zero_centred and self.raw else w

    def matrices(self, name):
        """The matrix of a module, or those of a stack of experts."""
        full = self.full(name)
        key = full if full in self.tensors else full + '.weight'
        w = self.array(key)
        if full + '.scales' in self.tensors:
            own = self.quant.get(full)
            own = own if isinstance(own, dict) else self.quant
            group, bits = own['group_size'], own['bits']
            s, b = self.array(full + '.scales'), self.array(full + '.biases')
            stack = (w, s, b) if w.ndim == 3 else (w[None], s[None], b[None])
            return [Quant(affine_codes(np.ascontiguousarray(x), bits, y.shape[1] * group), y, z, group) for x, y, z in zip(*stack)]
        return [Bf16(x) for x in (w if w.ndim == 3 else w[None])]

    def matrix(self, name): return self.matrices(name)[0]

    def conv(self, name):
        w = self.vector(name + '.weight')
        return w.reshape(w.shape[0], -1)


GGUF_SCALARS = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}
# type: elements, bytes of a block
GGUF_BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144), 13: (256, 176),
               14: (256, 210), 20: (32, 18), 30: (1, 2), 39: (32, 17)}
IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
MXFP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])
GGUF_NAMES = {
    'embed_tokens': 'token_embd', 'lm_head': 'output', 'norm': 'output_norm', 'input_layernorm': 'attn_norm', 'self_attn.q_proj': 'attn_q',
    'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output', 'self_attn.q_norm': 'attn_q_norm',
    'self_attn.k_norm': 'attn_k_norm', 'linear_attn.in_proj_qkv': 'attn_qkv', 'linear_attn.in_proj_z': 'attn_gate',
    'linear_attn.in_proj_b': 'ssm_beta', 'linear_attn.in_proj_a': 'ssm_alpha', 'linear_attn.conv1d': 'ssm_conv1d',
    'linear_attn.norm': 'ssm_norm', 'linear_attn.out_proj': 'ssm_out', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up',
    'mlp.down_proj': 'ffn_down', 'mlp.gate': 'ffn_gate_inp', 'mlp.shared_expert_gate': 'ffn_gate_inp_shexp',
    'mlp.switch_mlp.gate_proj': 'ffn_gate_exps', 'mlp.switch_mlp.up_proj': 'ffn_up_exps', 'mlp.switch_mlp.down_proj': 'ffn_down_exps',
    'mlp.shared_expert.gate_proj': 'ffn_gate_shexp', 'mlp.shared_expert.up_proj': 'ffn_up_shexp',
    'mlp.shared_expert.down_proj': 'ffn_down_shexp'}


def nibbles(b):
    """Blocks of 16 bytes to 32 codes."""
    return np.concatenate([b & 15, b >> 4], -1).astype(np.int16)


def k_scales(s):
    """12 bytes to the eight 6-bit scales and minima."""
    sc = [s[..., j] & 63 if j < 4 else (s[..., j + 4] & 15) | (s[..., j - 4] >> 6) << 4 for j in range(8)]
    mn = [s[..., j + 4] & 63 if j < 4 else (s[..., j + 4] >> 4) | (s[..., j] >> 6) << 4 for j in range(8)]
    return np.stack(sc, -1).astype(F), np.stack(mn, -1).astype(F)


def decode_blocks(kind, b):
    """b [n, blocks, bytes] to (codes [n, K], scale, bias or None, group)."""
    n = b.shape[0]
    half = lambda at: np.ascontiguousarray(b[..., at:at + 2]).view('<f2').astype(F)
    bias = None
    if kind in (2, 3):
        codes, scale = nibbles(b[..., -16:]), half(0)
        if kind == 2: codes = codes - 8
        else: bias = half(2)
    elif kind in (6, 7):
        at = 2 if kind == 6 else 4
        high = np.unpackbits(np.ascontiguousarray(b[..., at:at + 4]), axis=-1, bitorder='little').astype(np.int16)
        codes, scale = nibbles(b[..., -16:]) + 16 * high, half(0)
        if kind == 6: codes = codes - 16
        else: bias = half(2)
    elif kind == 8: codes, scale = b[..., 2:].view(np.int8).astype(np.int16), half(0)
    elif kind in (12, 13):
        sc, mn = k_scales(b[..., 4:16])
        scale, bias = mul(half(0), sc), -mul(half(2), mn)
        q = b[..., -128:].reshape(b.shape[:2] + (4, 1, 32))
        codes = np.concatenate([q & 15, q >> 4], -2).astype(np.int16).reshape(b.shape[:2] + (8, 32))
        if kind == 13:
            high = b[..., 16:48][..., None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1
            codes = codes + 16 * high.astype(np.int16)
    elif kind == 14:
        ql, qh = b[..., :128].reshape(b.shape[:2] + (2, 2, 32)), b[..., 128:192].reshape(b.shape[:2] + (2, 1, 32))
        low = np.concatenate([ql & 15, ql >> 4], -2)
        high = qh >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3
        codes = low.astype(np.int16) + 16 * high.astype(np.int16) - 32
        scale = mul(half(208), np.ascontiguousarray(b[..., 192:208]).view(np.int8).astype(F))
    elif kind == 20: codes, scale = IQ4_NL[nibbles(b[..., 2:])], half(0)
    else:
        e = b[..., 0].astype(np.int64)
        codes, scale = MXFP4[nibbles(b[..., 1:])], np.where(e < 2, 0.0, np.ldexp(1.0, e - 128)).astype(F)
    codes, scale = codes.reshape(n, -1).astype(np.int16), scale.reshape(n, -1)
    return codes, scale, None if bias is None else bias.reshape(n, -1), codes.shape[1] // scale.shape[1]


class Gguf:
    """A GGUF file, under the names of Folder; its config under the keys of config.json."""

    def __init__(self, path):
        with open(path, 'rb') as f: self.data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        at = 4

        def take(code):
            nonlocal at
            v = struct.unpack_from('<' + code, self.data, at)[0]
            at += struct.calcsize('<' + code)
            return v

        def string():
            nonlocal at
            n = take('Q')
            at += n
            return self.data[at - n:at].decode('utf-8', 'replace')

        def value(kind):
            if kind == 8: return string()
            if kind == 9:
                item, n = take('I'), take('Q')
                return [value(item) for _ in range(n)]
            return take(GGUF_SCALARS[kind])

        version, tensors, keys = take('I'), take('Q'), take('Q')
        assert version in (2, 3)
        meta = {}
        for _ in range(keys):
            key = string()
            meta[key] = value(take('I'))
        self.tensors = {}
        for _ in range(tensors):
            name = string()
            sizes = [take('Q') for _ in range(take('I'))]
            self.tensors[name] = take('I'), sizes[::-1], take('Q')
        align = meta.get('general.alignment', 32)
        self.start = (at + align - 1) // align * align
        arch = meta['general.architecture']
        get = lambda key, default=None: meta.get(arch + '.' + key, default)
        heads, width = get('attention.head_count'), get('embedding_length')
        dim = get('attention.key_length', width // heads)
        self.llama, self.modulo = arch == 'llama', arch.startswith('qwen35')
        layers = get('block_count') - get('nextn_predict_layers', 0)
        self.text = {
            'model_type': {'qwen35': 'qwen3_5', 'qwen35moe': 'qwen3_5_moe'}.get(arch, arch), 'hidden_size': width, 'num_hidden_layers': layers,
            'num_attention_heads': heads, 'num_key_value_heads': get('attention.head_count_kv', heads), 'head_dim': dim,
            'rms_norm_eps': get('attention.layer_norm_rms_epsilon'), 'full_attention_interval': get('full_attention_interval'),
            'linear_num_key_heads': get('ssm.group_count'), 'linear_num_value_heads': get('ssm.time_step_rank'),
            'linear_key_head_dim': get('ssm.state_size'), 'num_experts': get('expert_count'), 'num_experts_per_tok': get('expert_used_count'),
            'rope_theta': get('rope.freq_base', 10000.0), 'vocab_size': self.tensors['token_embd.weight'][1][0],
            'max_position_embeddings': get('context_length')}
        if self.modulo:
            self.text['linear_value_head_dim'] = get('ssm.inner_size') // get('ssm.time_step_rank')
            self.text['partial_rotary_factor'] = get('rope.dimension_count') / dim
        kind = get('rope.scaling.type', 'none')
        if kind in ('linear', 'yarn'):
            self.text['rope_scaling'] = {'rope_type': kind, 'factor': get('rope.scaling.factor'),
                                         'original_max_position_embeddings': get('rope.scaling.original_context_length')}
        self.dim = dim

    def full(self, name):
        parts = name.split('.')
        if parts[0] != 'layers': return GGUF_NAMES.get(name)
        rest = '.'.join(parts[2:])
        if rest == 'post_attention_layernorm': rest = 'post_attention_norm' if self.modulo else 'ffn_norm'
        else: rest = GGUF_NAMES.get(rest)
        return rest and 'blk.' + parts[1] + '.' + rest

    def has(self, name):
        bias = name.endswith('.bias')
        full = self.full(name[:-5] if bias else name)
        return full is not None and full + ('.bias' if bias else '.weight') in self.tensors

    def blocks(self, full):
        kind, shape, offset = self.tensors[full]
        elements, size = GGUF_BLOCKS[kind]
        n = math.prod(shape) // elements * size
        raw = np.frombuffer(self.data, np.uint8, n, self.start + offset)
        return kind, shape, raw.reshape(shape[:-1] + [shape[-1] // elements, size])

    def array(self, full):
        kind, shape, raw = self.blocks(full)
        if kind == 30: return widen_bf16(np.ascontiguousarray(raw).view('<u2')).reshape(shape)
        return np.ascontiguousarray(raw).view('<f4' if kind == 0 else '<f2').astype(F).reshape(shape)

    def order(self, name):
        """Half-split order of interleaved rows of q and k."""
        heads = self.text['num_attention_heads' if '.q_proj' in name else 'num_key_value_heads']
        one = np.arange(self.dim).reshape(-1, 2).T.reshape(-1)
        return (np.arange(heads)[:, None] * self.dim + one[None]).reshape(-1)

    def vector(self, name):
        if name.endswith('.A_log'): return self.array('blk.%s.ssm_a' % name.split('.')[1])
        if name.endswith('.dt_bias'): return self.array('blk.%s.ssm_dt.bias' % name.split('.')[1])
        if name.endswith('.bias'):
            v = daz(self.array(self.full(name[:-5]) + '.bias'))
            return v[self.order(name)] if self.llama and ('.q_proj' in name or '.k_proj' in name) else v
        return daz(self.array(self.full(name[:-7]) + '.weight'))

    def norm(self, name, zero_centred): return self.vector(name + '.weight')

    def matrices(self, name):
        full = self.full(name) + '.weight'
        kind, shape, raw = self.blocks(full)
        if len(shape) == 1: shape, raw = [1] + shape, raw[None]
        stack = raw if len(shape) == 3 else raw[None]
        if kind in (0, 1, 30): out = [Bf16(x) for x in self.array(full).reshape(stack.shape[:2] + (shape[-1],))]
        else: out = [Quant(*decode_blocks(kind, x)) for x in stack]
        if self.llama and ('.q_proj' in name or '.k_proj' in name): out = [m.permuted(self.order(name)) for m in out]
        return out

    def matrix(self, name): return self.matrices(name)[0]

    def conv(self, name): return self.vector(name + '.weight')


# ---- rope frequencies -------------------------------------------------------------------------------------------------


def rope_frequencies(text, dim, source):
    """(f32 frequencies, m) and the rotated dims R."""
    nested = text.get('rope_parameters') or {}
    p = dict(text.get('rope_scaling') or {}, **nested)
    kind = p.get('rope_type', p.get('type', 'default'))
    factor = nested.get('partial_rotary_factor', text.get('partial_rotary_factor'))
    default = 0.25 if text['model_type'].startswith('qwen3_5') else 1.0
    r = int(dim * (default if factor is None else factor))
    theta = float(nested.get('rope_theta', text.get('rope_theta') or 10000.0))
    logt = float(log64(theta))
    f = exp64(np.array([-(2.0 * j / r) * logt for j in range(r // 2)]))
    m = 1.0
    original = text.get('original_max_position_embeddings') or p.get('original_max_position_embeddings') or text.get('max_position_embeddings')
    if isinstance(source, Gguf) and 'rope_freqs.weight' in source.tensors: f = f / source.array('rope_freqs.weight').astype(D)
    elif kind == 'linear': f = f / float(p['factor'])
    elif kind == 'llama3':
        n, s, lo, hi = float(original), float(p['factor']), float(p['low_freq_factor']), float(p['high_freq_factor'])
        wave = 2.0 * math.pi / f
        t = (n / wave - lo) / (hi - lo)
        f = np.where(wave < n / hi, f, np.where(wave > n / lo, f / s, (1.0 - t) * f / s + t * f))
    elif kind == 'yarn':
        n = float(original)
        s = p.get('factor')
        s = float(s) if s is not None else text['max_position_embeddings'] / n
        turns = lambda b: r * float(log64(n / (2.0 * math.pi * b))) / (2.0 * logt)
        lo, hi = turns(float(p.get('beta_fast') or 32)), turns(float(p.get('beta_slow') or 1))
        if p.get('truncate', True): lo, hi = float(math.floor(lo)), float(math.ceil(hi))
        lo, hi = max(lo, 0.0), min(hi, r - 1.0)
        if lo == hi: hi += 0.001
        t = np.clip((np.arange(r // 2) - lo) / (hi - lo), 0.0, 1.0)
        f = (1.0 - t) * f + t * (f / s)
        g = lambda c: 1.0 if s <= 1 else 0.1 * c * float(log64(s)) + 1.0
        a, b = p.get('mscale'), p.get('mscale_all_dim')
        if p.get('attention_factor') is not None: m = float(p['attention_factor'])
        else: m = g(float(a)) / g(float(b)) if a and b else g(1.0)
    elif kind != 'default': raise ValueError('rope_type ' + kind)
    return rnd(f), F(m)


# ---- the model --------------------------------------------------------------------------------------------------------


class Model:
    def __init__(self, path, bits):
        self.src = Gguf(path) if os.path.isfile(path) else Folder(path)
        self.t, self.bits = self.src.text, bits
        t = self.t
        self.kind = t['model_type']
        self.qwen35 = self.kind.startswith('qwen3_5')
        self.hq = t['num_attention_heads']
        self.hkv = t.get('num_key_value_heads') or self.hq
        self.dim = t.get('head_dim') or t['hidden_size'] // self.hq
        self.eps = F(t.get('rms_norm_eps', 1e-6))
        self.freqs, self.m = rope_frequencies(t, self.dim, self.src)
        self.layers = t['num_hidden_layers']
        kinds = t.get('layer_types')
        if kinds is None:
            every = t.get('full_attention_interval') or 4 if self.qwen35 else 1
            kinds = ['full_attention' if (i + 1) % every == 0 else 'linear_attention' for i in range(self.layers)]
        self.kinds = kinds

    def linear(self, x, name):
        y = self.src.matrix(name).linear(x, self.bits)
        return add(y, self.src.vector(name + '.bias')) if self.src.has(name + '.bias') else y

    def norm(self, x, name): return rms(x, self.src.norm(name, self.qwen35), self.eps)

    def window(self, p):
        """Keys that a row of this layer sees, its own included; None: all."""
        t, size = self.t, self.t.get('sliding_window')
        if self.kind == 'mistral': return size
        if not t.get('use_sliding_window') or self.kind not in ('qwen2', 'qwen3'): return None
        return size if int(p.split('.')[1]) >= t.get('max_window_layers', 0) else None

    def full_attention(self, x, p):
        n = x.shape[0]
        q = self.linear(x, p + 'q_proj')
        if self.qwen35:
            q = q.reshape(n, self.hq, 2 * self.dim)
            q, gate = q[..., :self.dim], q[..., self.dim:]
        q = q.reshape(n, self.hq, self.dim)
        k = self.linear(x, p + 'k_proj').reshape(n, self.hkv, self.dim)
        v = self.linear(x, p + 'v_proj').reshape(n, self.hkv, self.dim)
        if self.src.has(p + 'q_norm'): q, k = self.norm(q, p + 'q_norm'), self.norm(k, p + 'k_norm')
        sin, cos = sincos(mul(np.arange(n, dtype=F)[:, None], self.freqs))
        sin, cos = mul(sin, self.m), mul(cos, self.m)
        o = attention(rope_apply(q, cos, sin), rope_apply(k, cos, sin), v, self.window(p))
        if self.qwen35: o = mul(o, sigmoid(gate))
        return self.linear(o.reshape(n, -1), p + 'o_proj')

    def delta_net(self, x, p):
        t, n = self.t, x.shape[0]
        nk, nv, dk, dv = (t['linear_' + s] for s in ('num_key_heads', 'num_value_heads', 'key_head_dim', 'value_head_dim'))
        qkv = self.linear(x, p + 'in_proj_qkv')
        z = self.linear(x, p + 'in_proj_z').reshape(n, nv, dv)
        b, a = self.linear(x, p + 'in_proj_b'), self.linear(x, p + 'in_proj_a')
        w = self.src.conv(p + 'conv1d')
        taps = w.shape[1]
        padded = np.concatenate([np.zeros((taps - 1, qkv.shape[1]), F), qkv])
        c = np.zeros_like(qkv)
        for j in range(taps): c = fma(padded[j:j + n], w[:, j], c)
        c = silu(c)
        q, k = (c[:, i * nk * dk:(i + 1) * nk * dk].reshape(n, nk, dk) for i in (0, 1))
        v = c[:, 2 * nk * dk:].reshape(n, nv, dv)
        q, k = mul(l2(q), F(1.0 / math.sqrt(dk))), l2(k)
        head = np.arange(nv) % nk if self.src.modulo else np.arange(nv) // (nv // nk)
        q, k = q[:, head], k[:, head]
        rate = self.src.vector(p + 'A_log')
        rate = daz(-rate) if self.src.modulo else exp(daz(rate))
        g = exp(-mul(rate, softplus(add(a, self.src.vector(p + 'dt_bias')))))
        beta = sigmoid(b)
        s = np.zeros((nv, dk, dv), F)
        out = np.empty((n, nv, dv), F)
        for i in range(n):
            s = mul(g[i][:, None, None], s)
            u = np.zeros((nv, dv), F)
            for j in range(dk): u = fma(s[:, j], k[i][:, j, None], u)
            d = mul(beta[i][:, None], sub(v[i], u))
            if PLANT == 'delta-fma': s = add(s, mul(k[i][:, :, None], d[:, None]))
            else: s = fma(k[i][:, :, None], d[:, None], s)
            o = np.zeros((nv, dv), F)
            for j in range(dk): o = fma(s[:, j], q[i][:, j, None], o)
            out[i] = o
        y = mul(rms(out, self.src.norm(p + 'norm', False), self.eps), silu(z))
        return self.linear(y.reshape(n, -1), p + 'out_proj')

    def swiglu(self, x, gate, up, down):
        return down(mul(silu(gate(x)), up(x)))

    def mlp(self, x, p):
        return self.swiglu(x, *(lambda v, s=s: self.linear(v, p + s) for s in ('gate_proj', 'up_proj', 'down_proj')))

    def experts(self, p):
        """[(gate, up, down)]"""
        src, e = self.src, self.t['num_experts']
        if src.has(p + 'experts.gate_up_proj'):
            both, down = src.matrices(p + 'experts.gate_up_proj'), src.matrices(p + 'experts.down_proj')
            return [(m.rows(0, m.n // 2), m.rows(m.n // 2, m.n), d) for m, d in zip(both, down)]
        names = ('gate_proj', 'up_proj', 'down_proj')
        if src.has(p + 'switch_mlp.gate_proj'): return list(zip(*(src.matrices(p + 'switch_mlp.' + s) for s in names)))
        return [tuple(src.matrix('%sexperts.%d.%s' % (p, i, s)) for s in names) for i in range(e)]

    def moe(self, x, p):
        n, top = x.shape[0], self.t['num_experts_per_tok']
        r = self.linear(x, p + 'gate')
        e = exp(sub(r, r.max(-1, keepdims=True)))
        prob = div(e, row_sum(e)[:, None])
        order = np.argsort(-prob, axis=-1, kind='stable')[:, :top]
        w = np.take_along_axis(prob, order, -1)
        if self.qwen35 or self.t.get('norm_topk_prob'):
            s = np.zeros(n, F)
            for i in range(top): s = add(s, w[:, i])
            w = div(w, s[:, None])
        y = np.zeros((n, top, x.shape[1]), F)
        for i, (gate, up, down) in enumerate(self.experts(p)):
            at = np.argwhere(order == i)
            if len(at):
                y[at[:, 0], at[:, 1]] = self.swiglu(x[at[:, 0]], *(lambda v, m=m: m.linear(v, self.bits) for m in (gate, up, down)))
        out = np.zeros_like(x)
        for i in range(top): out = fma(w[:, i, None], y[:, i], out)
        if self.src.has(p + 'shared_expert.gate_proj'):
            shared = self.mlp(x, p + 'shared_expert.')
            out = add(out, mul(shared, sigmoid(self.linear(x, p + 'shared_expert_gate'))))
        return out

    def logits(self, ids, first=0):
        """Rows `first`.. of the logits."""
        embed = self.src.matrix('embed_tokens')
        x = embed.embed(np.array(ids))
        for i in range(self.layers):
            p = 'layers.%d.' % i
            a = self.norm(x, p + 'input_layernorm')
            mixer = self.full_attention(a, p + 'self_attn.') if self.kinds[i] != 'linear_attention' else self.delta_net(a, p + 'linear_attn.')
            x = add(mixer, x)
            a = self.norm(x, p + 'post_attention_layernorm')
            x = add(self.moe(a, p + 'mlp.') if self.src.has(p + 'mlp.gate') else self.mlp(a, p + 'mlp.'), x)
        head = self.src.matrix('lm_head') if self.src.has('lm_head') else embed
        return head.linear(self.norm(x, 'norm')[first:], self.bits)


# ---- sampling ---------------------------------------------------------------------------------------------------------


def philox(counter, key):
    """Philox4x32-10; counter: four arrays of u64 that hold 32 bits."""
    c, k = list(counter), list(key)
    low = np.uint64(0xffffffff)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), b & low, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), a & low]
        k = [(k[0] + 0x9E3779B9) & 0xffffffff, (k[1] + 0xBB67AE85) & 0xffffffff]
    return c


def sample(row, position, temperature, seed, known):
    """Temperature and noise alone; the rest of the section has an oracle of its own (sampler.py). known: ids that are tokens."""
    ids = np.arange(len(row))
    if F(temperature) < F(1e-5): return int(np.argmax(np.where(known, row, F(-np.inf))))
    z = div(row, F(temperature))
    quads = (ids >> 2).astype(np.uint64)
    zero = np.zeros_like(quads)
    words = philox([quads, zero + np.uint64(position + 1), zero, zero], [seed & 0xffffffff, seed >> 32])
    r = np.choose(ids & 3, words)
    low = mul(add((r & np.uint64(0xffff)).astype(F), F(0.5)), F(2.0**-32))
    v = fma((r >> np.uint64(16)).astype(F), F(2.0**-16), low)
    return int(np.argmax(np.where(known, sub(z, log(-log1p(-v))), F(-np.inf))))


def tokens_of(path, count):
    known = np.ones(count, bool)
    path = os.path.join(path, 'tokenizer.json')
    if os.path.exists(path):
        with open(path, encoding='utf-8') as f: t = json.load(f)
        ids = list(t['model']['vocab'].values()) + [a['id'] for a in t.get('added_tokens', [])]
        known[:] = False
        known[[i for i in ids if i < count]] = True
    return known


def golden_prompt(n, vocab):
    state, ids = 77 + n, []
    for _ in range((3, 17, 80, 60)[n]):
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xffffffffffffffff
        ids.append((state >> 33) % vocab)
    return ids


def golden_hashes():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/golden/invariance_hashes.h')
    with open(path, encoding='utf-8') as f: return [s for s in f.read().split('"') if len(s) == 64]


# ---- comparison -------------------------------------------------------------------------------------------------------


def run_program(args, ids):
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, 'logits.safetensors')
        command = [args.verbatim, 'run', '-m', args.model, '--ids', ','.join(map(str, ids)), '--temp', str(args.temp), '--top-k', '0',
                   '--top-p', '1', '--min-p', '0', '--repeat-penalty', '1', '--seed', str(args.seed), '--ignore-eos', '-n', str(args.new),
                   '--activations', str(args.activations), '--all-logits', '--logits-out', out, '--json'] + args.args.split()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            print('contract.py: %s exits %d: %s' % (args.verbatim, done.returncode, done.stderr.strip()))
            sys.exit(3)
        with open(out, 'rb') as f: data = f.read()
    n = struct.unpack('<Q', data[:8])[0]
    shape = json.loads(data[8:8 + n])['logits']['shape']
    return json.loads(done.stdout), np.frombuffer(data[8 + n:], '<f4').reshape(shape)


def selftest():
    """The oracle's own arithmetic against rationals."""
    rng = np.random.default_rng(1)

    def f32(x):  # a Fraction to f32, round to nearest even, exponent unbounded below, tiny to 0
        if x == 0: return 0.0
        s, x = (-1 if x < 0 else 1), abs(x)
        e = x.numerator.bit_length() - x.denominator.bit_length()
        if x < Fraction(2)**e: e -= 1
        q = Fraction(2)**(e - 23)
        v = round(x / q) * q
        return s * (float(v) if v >= Fraction(2)**-126 else 0.0)

    for spread in (1, 20, 60, 100):
        a, b, c = (rng.standard_normal(5000).astype(F) * np.exp2(rng.integers(-spread, spread, 5000) / 2).astype(F) for _ in range(3))
        c[::3] = -(a * b)[::3]
        c[1::3] = (np.nextafter(a * b, F(0)) * F(2.0**24))[1::3]  # near ties
        a[4::5] = (a.view(np.uint32) & np.uint32(0xfffff000)).view(F)[4::5]
        a, b, c = daz(a), daz(b), daz(c)
        got = fma(a, b, c)
        for i in range(len(a)):
            if not np.isfinite(got[i]): continue
            want = f32(Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i])))
            assert float(got[i]) == want, (a[i], b[i], c[i], got[i], want)
    a, b = rng.standard_normal(20000) * np.exp2(rng.integers(-30, 30, 20000)), rng.standard_normal(20000)
    c = rng.standard_normal(20000) * np.exp2(rng.integers(-60, 30, 20000))
    c[::3] = -(a * b)[::3]
    for x, y, z, got in zip(a, b, c, fma64(a, b, c)):
        assert float(got) == float(Fraction(x) * Fraction(y) + Fraction(z)), (x, y, z)
    print('contract.py: fma and fma64 agree with rationals')
    return 0


def main():
    global PLANT
    p = argparse.ArgumentParser(usage=__doc__.split('usage: ')[1].split('\n\n')[0], add_help=False)
    for name, kind, default in (('--verbatim', str, 'build/verbatim'), ('--activations', int, 8), ('--ids', str, None), ('--tokens', int, 24),
                                ('--seed', int, 1), ('--new', int, 4), ('--args', str, ''), ('--plant', str, None), ('--temp', float, 0.0),
                                ('--golden', int, None)):
        p.add_argument(name, type=kind, default=default)
    p.add_argument('--selftest', action='store_true')
    p.add_argument('-h', '--help', action='store_true')
    p.add_argument('model', nargs='?')
    args = p.parse_args()
    if args.help: return print(__doc__) or 0
    if args.selftest: return selftest()
    if args.plant == 'help': return print('\n'.join('%-14s %s' % kv for kv in FAULTS.items())) or 0
    if args.model is None or args.plant not in (None, *FAULTS) or args.activations not in (8, 16):
        print('usage: ' + p.usage, file=sys.stderr)
        return 2
    PLANT = args.plant
    model = Model(args.model, args.activations)
    draw = random.Random(args.seed)
    ids = [int(s) for s in args.ids.split(',')] if args.ids else [draw.randrange(model.t['vocab_size']) for _ in range(args.tokens)]
    if args.golden is not None:
        ids = golden_prompt(args.golden, model.t['vocab_size'])
        args.new, args.temp, args.seed = 8, 0.8, 5
    report, theirs = run_program(args, ids)
    decoded = report['token_ids'][:max(0, args.new - 1)]
    ours = model.logits(ids + decoded)
    name = '%s, %d-bit activations, %d + %d rows of %d' % (args.model, args.activations, len(ids), len(decoded), ours.shape[1])
    if theirs.shape != ours.shape:
        print('%s: shape %s, expected %s' % (name, theirs.shape, ours.shape))
        return 1
    a, b = ours.view(np.uint32), theirs.view(np.uint32)
    if (a != b).any():
        row, col = np.argwhere(a != b)[0]
        print('%s: %d of %d logits differ, the first at position %d, token %d: %08x (%r), expected %08x (%r)' %
              (name, (a != b).sum(), a.size, row, col, b[row, col], float(theirs[row, col]), a[row, col], float(ours[row, col])))
        return 1
    if args.new:
        ours_hash = hashlib.sha256(ours[len(ids) - 1:].astype('<f4').tobytes()).hexdigest()
        if ours_hash != report['logits_sha256']:
            print('%s: logits_sha256 %s, expected %s' % (name, report['logits_sha256'], ours_hash))
            return 1
        known = tokens_of(args.model, ours.shape[1])
        for i, token in enumerate(report['token_ids']):
            want = sample(ours[len(ids) - 1 + i], len(ids) - 1 + i, args.temp, args.seed, known)
            if token != want:
                print('%s: token %d is %d, expected %d' % (name, i, token, want))
                return 1
        if args.golden is not None and ours_hash not in golden_hashes():
            print('%s: hash %s is not one of the committed ones' % (name, ours_hash))
            return 1
    print('%s: every bit equal' % name)
    return 0


if __name__ == '__main__': sys.exit(main())
