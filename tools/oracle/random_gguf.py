#!/usr/bin/env python3
"""Writes a small Llama of random quantised blocks, to try a type of GGUF (docs/formats.md) bit by bit with contract.py.

usage: tools/oracle/random_gguf.py TYPE FILE [SEED [wild]]

TYPE: f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, iq4_nl, mxfp4. All matrices and the embedding have it; rows of q and
k are taken as interleaved, as this architecture's are. Scales have both signs, and some are zero or denormal as fp16. There is no
tokenizer. wild: norm weights down to 2^-126, so that groups of inputs, products and logits are tiny. Standard library only."""
import random, struct, sys

HIDDEN, FFN, HEADS, KV, DIM, LAYERS, VOCAB = 256, 512, 4, 2, 64, 2, 320
# name: number, elements, bytes of a block, and the typical fp16 scale for weights of about 0.06
TYPES = {'f32': (0, 1, 4, 0.06), 'f16': (1, 1, 2, 0.06), 'bf16': (30, 1, 2, 0.06), 'q4_0': (2, 32, 18, 0.012), 'q4_1': (3, 32, 20, 0.012),
         'q5_0': (6, 32, 22, 0.006), 'q5_1': (7, 32, 24, 0.006), 'q8_0': (8, 32, 34, 0.0008), 'q4_k': (12, 256, 144, 0.0004),
         'q5_k': (13, 256, 176, 0.0002), 'q6_k': (14, 256, 210, 0.00004), 'iq4_nl': (20, 32, 18, 0.0009), 'mxfp4': (39, 32, 17, 0.0)}


def string(s): return struct.pack('<Q', len(s)) + s.encode()


def half(rnd, scale):
    roll = rnd.random()
    if roll < 0.02: return struct.pack('<e', 0.0)
    if roll < 0.04: return struct.pack('<H', rnd.randrange(1, 0x400))  # denormal
    return struct.pack('<e', rnd.choice((-1, 1)) * scale * rnd.uniform(0.3, 1.7))


def block(rnd, kind):
    scale = TYPES[kind][3]
    bulk = rnd.randbytes
    if kind == 'f32': return struct.pack('<f', rnd.gauss(0, scale))
    if kind == 'f16': return struct.pack('<e', rnd.gauss(0, scale))
    if kind == 'bf16': return struct.pack('<f', rnd.gauss(0, scale))[2:]
    if kind in ('q4_0', 'iq4_nl'): return half(rnd, scale) + bulk(16)
    if kind == 'q4_1': return half(rnd, scale) + half(rnd, 0.09) + bulk(16)
    if kind == 'q5_0': return half(rnd, scale) + bulk(20)
    if kind == 'q5_1': return half(rnd, scale) + half(rnd, 0.09) + bulk(20)
    if kind == 'q8_0': return half(rnd, scale) + bulk(32)
    if kind == 'q4_k': return half(rnd, scale) + half(rnd, 0.003) + bulk(140)
    if kind == 'q5_k': return half(rnd, scale) + half(rnd, 0.003) + bulk(172)
    if kind == 'q6_k': return bulk(208) + half(rnd, scale)
    return bytes([rnd.choice((0, 1, 2, 119, 120, 121, 122, 123))]) + bulk(16)


def norm(rnd, n, exponents):
    """n weights; runs of 64 share one of the exponents."""
    out = []
    for i in range(n):
        if i % 64 == 0: e = rnd.choice(exponents)
        out.append(rnd.uniform(0.5, 1.5) * 2.0**-(e - (rnd.random() < 0.1)))
    return struct.pack('<%df' % n, *out)


def main():
    if not 3 <= len(sys.argv) <= 5 or sys.argv[1] not in TYPES or sys.argv[4:] not in ([], ['wild']):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    kind, rnd, wild = sys.argv[1], random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1), len(sys.argv) == 5
    inner = (0, 0, 0, 20, 50, 60, 62, 63, 64, 65, 70, 90, 110, 125) if wild else (0,)
    last = ((100, 110, 118, 122) if TYPES[kind][1] == 1 else (0, 20, 60, 63, 64, 65)) if wild else (0,)
    u32 = lambda k, v: string(k) + struct.pack('<II', 4, v)
    f32 = lambda k, v: string(k) + struct.pack('<If', 6, v)
    keys = [string('general.architecture') + struct.pack('<I', 8) + string('llama')]
    for k, v in (('block_count', LAYERS), ('embedding_length', HIDDEN), ('feed_forward_length', FFN), ('context_length', 4096),
                 ('attention.head_count', HEADS), ('attention.head_count_kv', KV), ('attention.key_length', DIM), ('attention.value_length', DIM),
                 ('rope.dimension_count', DIM), ('vocab_size', VOCAB)): keys.append(u32('llama.' + k, v))
    keys += [f32('llama.attention.layer_norm_rms_epsilon', 1e-5), f32('llama.rope.freq_base', 10000.0)]
    tensors = [('token_embd.weight', (VOCAB, HIDDEN)), ('output_norm.weight', (HIDDEN,))]
    for i in range(LAYERS):
        p = 'blk.%d.' % i
        tensors += [(p + 'attn_norm.weight', (HIDDEN,)), (p + 'ffn_norm.weight', (HIDDEN,)), (p + 'attn_q.weight', (HEADS * DIM, HIDDEN)),
                    (p + 'attn_k.weight', (KV * DIM, HIDDEN)), (p + 'attn_v.weight', (KV * DIM, HIDDEN)),
                    (p + 'attn_output.weight', (HIDDEN, HEADS * DIM)), (p + 'ffn_gate.weight', (FFN, HIDDEN)),
                    (p + 'ffn_up.weight', (FFN, HIDDEN)), (p + 'ffn_down.weight', (HIDDEN, FFN))]
    number, elements, size, _ = TYPES[kind]
    infos, data = [], b''
    for name, shape in tensors:
        data += bytes(-len(data) % 32)
        infos.append(string(name) + struct.pack('<I', len(shape)) + struct.pack('<%dQ' % len(shape), *shape[::-1]) +
                     struct.pack('<IQ', number if len(shape) == 2 else 0, len(data)))
        if len(shape) == 1: data += norm(rnd, shape[0], last if name == 'output_norm.weight' else inner)
        else: data += b''.join(block(rnd, kind) for _ in range(shape[0] * shape[1] // elements))
    data += bytes(-len(data) % 32)
    head = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), len(keys)) + b''.join(keys) + b''.join(infos)
    with open(sys.argv[2], 'wb') as f: f.write(head + bytes(-len(head) % 32) + data)
    return 0


if __name__ == '__main__': sys.exit(main())
