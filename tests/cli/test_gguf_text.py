#!/usr/bin/env python3
"""GGUF files from outside: which of them begin a text with BOS, what a vocabulary that is none still allows, and what inspect
says of rotary scaling.

usage: test_gguf_text.py PROGRAM"""
import json, os, struct, subprocess, sys, tempfile

PROGRAM = sys.argv[1]
H, I, V = 64, 96, 8
TOKENS = ['<s>', '</s>', 'a', 'b', 'ab', 'c', 'd', 'e']


def text(s):
    return struct.pack('<Q', len(s.encode())) + s.encode()


def key(name, value):
    if isinstance(value, bool): kind, data = 7, bytes([value])
    elif isinstance(value, int): kind, data = 4, struct.pack('<I', value)
    elif isinstance(value, float): kind, data = 6, struct.pack('<f', value)
    elif isinstance(value, str): kind, data = 8, text(value)
    elif all(isinstance(x, str) for x in value): kind, data = 9, struct.pack('<IQ', 8, len(value)) + b''.join(map(text, value))
    else: kind, data = 9, struct.pack('<IQ', 5, len(value)) + b''.join(struct.pack('<i', x) for x in value)
    return text(name) + struct.pack('<I', kind) + data


def write(path, more=(), divisors=False, **vocabulary):
    keys = {'general.architecture': 'llama', 'llama.block_count': 1, 'llama.embedding_length': H, 'llama.feed_forward_length': I,
            'llama.context_length': 64, 'llama.attention.head_count': 2, 'llama.attention.layer_norm_rms_epsilon': 1e-5}
    keys.update({'tokenizer.ggml.' + k: v for k, v in vocabulary.items() if v is not None})
    keys.update(more)
    shapes = {'token_embd.weight': [H, V], 'output_norm.weight': [H]}
    if divisors: shapes['rope_freqs.weight'] = [H // 4]
    for name, shape in (('attn_norm', [H]), ('ffn_norm', [H]), ('attn_q', [H, H]), ('attn_k', [H, H]), ('attn_v', [H, H]),
                        ('attn_output', [H, H]), ('ffn_gate', [H, I]), ('ffn_up', [H, I]), ('ffn_down', [I, H])):
        shapes[f'blk.0.{name}.weight'] = shape
    infos, data = b'', b''
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        infos += text(name) + struct.pack('<I', len(shape)) + struct.pack(f'<{len(shape)}Q', *shape) + struct.pack('<IQ', 0, len(data))
        data += struct.pack(f'<{n}f', *([0.5] * n))
    head = b'GGUF' + struct.pack('<IQQ', 3, len(shapes), len(keys)) + b''.join(key(k, v) for k, v in keys.items()) + infos
    with open(path, 'wb') as f: f.write(head + bytes(-len(head) % 32) + data)


def run(*args, stdin=''):
    env = {k: v for k, v in os.environ.items() if not k.startswith('VERBATIM_')}
    p = subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, text=True, timeout=60, env=dict(env, VERBATIM_HOME='/nonexistent'))
    return p.returncode, p.stdout, p.stderr


def expect(what, got, want):
    if got != want:
        print(f'{what}: {got}, expected {want}')
        expect.wrong += 1


expect.wrong = 0


def encoded(path, add_special):
    code, out, err = run('tokenize', '-m', path, '--stdin-jsonl', stdin=json.dumps({'text': 'ab', 'add_special': add_special}) + '\n')
    return json.loads(out)['ids'] if code == 0 else err


def bos(path):
    usual = dict(model='gpt2', tokens=TOKENS, token_type=[3, 3, 1, 1, 1, 1, 1, 1], merges=['a b'], bos_token_id=0, eos_token_id=1)
    for pre, add, want in (('llama-bpe', None, [0, 4]), ('llama-bpe', False, [4]), ('qwen2', None, [4]), ('qwen2', True, [0, 4]),
                           ('smollm', None, [4]), ('tekken', None, [0, 4]), (None, None, [4])):
        write(path, pre=pre, add_bos_token=add, **usual)
        expect(f'pre {pre}, add_bos_token {add}', encoded(path, True), want)
        expect(f'pre {pre}, no special tokens', encoded(path, False), [4])


def padding(path):
    """A padding id that is no token is left out with a word; an end token that is none is an error."""
    usual = dict(model='gpt2', pre='qwen2', tokens=TOKENS, token_type=[3, 3, 1, 1, 1, 1, 1, 1], merges=['a b'], eos_token_id=1)
    for bad in (8, 4294967295):
        write(path, padding_token_id=bad, **usual)
        expect(f'padding {bad}', encoded(path, True), [4])
    write(path, **dict(usual, eos_token_id=8))
    expect('eos 8', run('run', '-m', path, '--ids', '2', '-n', '1')[0], 3)


def dummy(path):
    """Real tensors beside words that stand for nothing, as test models have them."""
    merges = 'x.gguf: tokenizer.ggml.merges[0]: "a c" has a part that is not a token'
    write(path, model='gpt2', pre='llama-bpe', tokens=TOKENS, merges=['a c'])
    code, out, err = run('run', '-m', path, '--ids', '2,3', '-n', '2', '--json', '--ignore-eos')
    expect('ids with a dummy vocabulary', (code, merges in err), (0, True))
    if code == 0: expect('its answer', (len(json.loads(out)['token_ids']), json.loads(out)['text']), (2, ''))
    for args in (('run', '-m', path, '-p', 'ab'), ('run', '-m', path, '--raw', '-p', 'ab'), ('tokenize', '-m', path, 'ab')):
        code, out, err = run(*args)
        expect(' '.join(args[:1] + args[3:]), (code, out, err.strip().split('\n')[-1]), (3, '', 'verbatim: error: ' + merges))
    write(path, model='gpt2', tokens=TOKENS, token_type=[1, 1])  # cut short is no dummy
    code, out, err = run('run', '-m', path, '--ids', '2,3', '-n', '1')
    expect('token_type cut short', (code, 'key tokenizer.ggml.token_type: has 2 values' in err), (3, True))
    write(path)
    expect('ids without a vocabulary', run('run', '-m', path, '--ids', '2,3', '-n', '1')[0], 0)
    code, out, err = run('run', '-m', path, '-p', 'ab')
    expect('text without a vocabulary', (code, 'x.gguf: key tokenizer.ggml.tokens: is missing' in err), (3, True))


def template(path):
    words = dict(model='gpt2', tokens=TOKENS, merges=['a b'])
    for value, said in (('{{ messages[0].content }}', ''), (7, 'x.gguf: key tokenizer.chat_template: is u32, expected a string'),
                        ('x' * ((1 << 20) + 1), 'x.gguf: key tokenizer.chat_template: has 1048577 bytes, expected at most 1048576')):
        write(path, more={'tokenizer.chat_template': value}, **words)
        code, out, err = run('run', '-m', path, '-p', 'ab', '-n', '1')
        expect(f'chat template {str(value)[:30]}', (code == 0, said in err), (said == '', True))


def rope(path):
    for more, divisors, want in (
            ({}, False, {'type': 'default', 'theta': 10000.0}), ({}, True, {'type': 'divisors', 'theta': 10000.0}),
            ({'llama.rope.scale_linear': 4.0, 'llama.rope.freq_base': 500.0}, False, {'type': 'linear', 'theta': 500.0, 'factor': 4.0}),
            ({'llama.rope.scaling.type': 'yarn', 'llama.rope.scaling.factor': 4.0, 'llama.rope.scaling.original_context_length': 16},
             False, {'type': 'yarn', 'theta': 10000.0, 'factor': 4.0, 'original_max': 16.0})):
        write(path, more=more, divisors=divisors)
        code, out, err = run('inspect', '-m', path, '--json')
        expect('rope of inspect', json.loads(out)['config']['rope'] if code == 0 else err, dict(want, rotated=H // 2))


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'x.gguf')
    bos(path)
    padding(path)
    dummy(path)
    rope(path)
    template(path)
print('test_gguf_text:', 'wrong' if expect.wrong else 'as expected')
sys.exit(expect.wrong != 0)
