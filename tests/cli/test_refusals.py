#!/usr/bin/env python3
"""The table of refusals in docs/models.md: each line of it is tried, and the program must say exactly what is written there.

usage: test_refusals.py PROGRAM SOURCE_ROOT"""
import json, os, re, shutil, struct, subprocess, sys, tempfile

PROGRAM, ROOT = sys.argv[1:3]
H, I, V, D = 64, 96, 40, 32
LLAMA = {'model_type': 'llama', 'hidden_size': H, 'intermediate_size': I, 'num_hidden_layers': 2, 'num_attention_heads': 2,
         'num_key_value_heads': 1, 'vocab_size': V, 'max_position_embeddings': 64, 'rms_norm_eps': 1e-5, 'tie_word_embeddings': True}


def llama_shapes():
    shapes = {'embed_tokens.weight': [V, H], 'norm.weight': [H]}
    for i in range(2):
        for name, shape in (('input_layernorm', [H]), ('post_attention_layernorm', [H]), ('self_attn.q_proj', [H, H]),
                            ('self_attn.k_proj', [D, H]), ('self_attn.v_proj', [D, H]), ('self_attn.o_proj', [H, H]),
                            ('mlp.gate_proj', [I, H]), ('mlp.up_proj', [I, H]), ('mlp.down_proj', [H, I])):
            shapes[f'layers.{i}.{name}.weight'] = shape
    return {'model.' + k: v for k, v in shapes.items()}


def safetensors(path, shapes, cut=0, more=b'', value=b'\0\0'):
    head, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for n in shape: size *= n
        head[name] = {'dtype': 'BF16', 'shape': shape, 'data_offsets': [at, at + size]}
        at += size
    head = json.dumps(head).encode()
    with open(path, 'wb') as f: f.write(struct.pack('<Q', len(head)) + head + (value * (at // 2))[:at - cut] + more)


def gguf(path, arch='llama', version=3, kind=0, order='<', part=None):
    text = lambda s: struct.pack(order + 'Q', len(s)) + s.encode()
    keys = text('general.architecture') + struct.pack(order + 'I', 8) + text(arch)
    if part: keys = b''.join(text(k) + struct.pack('<II', 4, v) for k, v in (('split.no', part[0]), ('split.count', part[1])))
    tensor = text('T') + struct.pack(order + 'IQIQ', 1, 256, kind, 0)
    head = b'GGUF' + struct.pack(order + 'IQQ', version, 1, 2 if part else 1) + keys + tensor
    with open(path, 'wb') as f: f.write(head + bytes(-len(head) % 32) + bytes(1024))


class Cases:
    """Each makes what a line of the table is about, in a folder of its own, and gives the path and what stands for what."""
    def __init__(self, folder):
        self.dir = folder

    def config(self, config):
        with open(os.path.join(self.dir, 'config.json'), 'w') as f: json.dump(config, f)
        return self.dir

    def llama(self, shapes=None, **k):
        safetensors(os.path.join(self.dir, 'model.safetensors'), shapes or llama_shapes(), **k)
        return self.config(LLAMA)

    def of(self, name):
        with open(os.path.join(ROOT, 'models', name, 'config.json')) as f: return json.load(f)

    def gguf(self, **k):
        path = os.path.join(self.dir, 'x.gguf')
        gguf(path, **k)
        return path

    def shaped(self, change):
        shapes = llama_shapes()
        change(shapes)
        return self.llama(shapes)

    def biased(self, config, projections):
        shapes = llama_shapes()
        for name in list(shapes):
            if name.endswith(tuple(f'{p}_proj.weight' for p in projections)) and 'self_attn' in name:
                shapes[name.replace('.weight', '.bias')] = shapes[name][:1]
        safetensors(os.path.join(self.dir, 'model.safetensors'), shapes)
        return self.config(config)

    def index(self, name):
        with open(os.path.join(self.dir, 'model.safetensors.index.json'), 'w') as f:
            json.dump({'metadata': {'total_size': 1}, 'weight_map': {'T': name}}, f)
        return self.config(LLAMA)

    def missing_head_dim(self):
        text = self.of('atto')
        text = text.get('text_config', text)
        return self.config({'model_type': 'qwen3_5', 'text_config': {k: v for k, v in text.items() if k != 'head_dim'}})

    def make(self, what):
        last = list(llama_shapes())[-1]
        return {
            'another architecture': lambda: self.config(dict(LLAMA, model_type='gpt2')),
            'the same in GGUF': lambda: self.gguf(arch='bert'),
            'a drafter as the model': lambda: os.path.join(ROOT, 'models', 'atto-dflash'),
            'DFlash2, DSpark': lambda: self.config(dict(self.of('atto-dflash'), architectures=['DFlash2DraftModel'])),
            'a key that a derivative of DFlash adds': lambda: self.config(dict(self.of('atto-dflash'), markov_rank=4)),
            'FP8, GPTQ, AWQ': lambda: self.config(dict(LLAMA, quantization_config={'quant_method': 'fp8'})),
            'other MLX modes': lambda: self.config(dict(LLAMA, quantization={'mode': 'mxfp4', 'bits': 4, 'group_size': 32})),
            'dynamic or longrope scaling': lambda: self.config(dict(LLAMA, rope_parameters={'rope_type': 'dynamic', 'factor': 2})),
            'dense families that rotate a part': lambda: self.config(dict(LLAMA, partial_rotary_factor=0.5)),
            'a sliding window in llama': lambda: self.config(dict(LLAMA, sliding_window=32)),
            'a missing key': self.missing_head_dim,
            'a missing tensor': lambda: self.shaped(lambda s: s.pop('model.layers.1.self_attn.k_proj.weight')),
            'one too many': lambda: self.shaped(lambda s: s.update({'model.layers.2.extra': [3]})),
            'a bias without a place': lambda: self.shaped(lambda s: s.update({'model.norm.bias': [H]})),
            'a bias that the config announces': lambda: self.biased(dict(LLAMA, attention_bias=True), 'qkv'),
            'a bias on Qwen 2\'s output projection': lambda: self.biased(dict(LLAMA, model_type='qwen2'), 'qkvo'),
            'heads wider than 256': lambda: self.config(dict(LLAMA, head_dim=512)),
            'another shape': lambda: self.shaped(lambda s: s.update({'model.norm.weight': [65]})),
            'a file cut short': lambda: self.llama(cut=1),
            'bytes behind the data': lambda: self.llama(more=b'x'),
            'a shard outside the folder': lambda: self.index('../s1.safetensors'),
            'a missing shard': lambda: self.index('s1.safetensors'),
            'a type of GGUF that is not listed': lambda: self.gguf(kind=10),
            'GGUF version 1': lambda: self.gguf(version=1),
            'a big-endian GGUF': lambda: self.gguf(order='>'),
            'a part of a split GGUF that is not the first': lambda: self.gguf(part=(1, 3)),
            'a file that is no GGUF': lambda: shutil.copy(os.path.join(ROOT, 'README.md'), os.path.join(self.dir, 'x.gguf')),
        }[what](), {self.dir: 'MODEL', os.path.join(ROOT, 'models', 'atto-dflash'): 'MODEL', last: 'T'}


QUANTIZE = ('a missing tensor', 'one too many', 'a bias without a place', 'a bias that the config announces', 'another shape', 'a missing key')


def quantize(what, path, folder, names, want):
    """What does not load is not quantised either, in the same words, and leaves nothing. 1 when that is not so."""
    out = os.path.join(folder, 'out')
    p = subprocess.run([PROGRAM, 'quantize', '-m', path, '-o', out], capture_output=True, text=True, timeout=60)
    got = p.stderr.strip()
    for name, word in names.items(): got = got.replace(name, word)
    if p.returncode == 3 and got == 'verbatim: error: ' + want and not os.path.exists(out): return 0
    print(f'quantize, {what}: exit code {p.returncode}, says {got}, {"something" if os.path.exists(out) else "nothing"} is left')
    return 1


def not_finite():
    """What loads and is not a number shows at the first logits: the file is named. 1 when it is not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Cases(folder).llama(value=b'\xc0\x7f')
        p = subprocess.run([PROGRAM, 'run', '-m', path, '--ids', '1,2', '-n', '1'], capture_output=True, text=True, timeout=60, env=dict(os.environ, VERBATIM_HOME=folder))
        if p.returncode == 5 and re.search(f'^verbatim: error: {re.escape(path)}: .*not finite', p.stderr, re.M): return 0
        print(f'not finite: exit code {p.returncode}, says {p.stderr}')
        return 1


def main():
    with open(os.path.join(ROOT, 'docs', 'models.md')) as f: page = f.read()
    table = re.findall(r'^\| ([^`|]+) \| `([^`]+)` \|$', page[page.index('## What does not load'):], re.M)
    if not table: sys.exit('docs/models.md: no table of refusals')
    wrong = 0
    for what, want in table:
        with tempfile.TemporaryDirectory() as folder:
            path, names = Cases(folder).make(what)
            env = {k: v for k, v in os.environ.items() if not k.startswith('VERBATIM_')}
            p = subprocess.run([PROGRAM, 'run', '-m', path, '--ids', '1,2', '-n', '1'], capture_output=True, text=True, timeout=60,
                               env=dict(env, VERBATIM_HOME=folder))
            said = [line for line in p.stderr.split('\n') if line.startswith('verbatim: error: ')]
            got = said[0][len('verbatim: error: '):] if said else p.stderr
            for name, word in names.items(): got = got.replace(name, word)
            if p.returncode != 3 or got != want:
                wrong += 1
                print(f'{what}: exit code {p.returncode}\n  says      {got}\n  docs say  {want}')
            if what in QUANTIZE: wrong += quantize(what, path, folder, names, want)
    wrong += not_finite()
    print(f'{len(table) - wrong} of {len(table)} lines are as written')
    sys.exit(wrong != 0)


main()
