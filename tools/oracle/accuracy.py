#!/usr/bin/env python3
"""How far our logits are from an f32 run of the same weights by the stock implementation (docs/accuracy.md).

usage: tools/oracle/accuracy.py [--verbatim build/verbatim] [--reference ../shared/fixtures/reference.json]
                                [--activations 8 16] [--json] MODEL...

MODEL is a folder of the Qwen 3.5 dense architecture, bf16 or affine (MLX layout). Its matrices are dequantised to f32 (code * scale
+ bias, rounded once) and run in f32 by transformers. Both are fed the tokens of the reference's prompts and answers;
compared are the rows from the last prompt token to the last answer token: KL(f32 || ours) of the next-token
distributions in f64, the largest logit difference, and how often the most likely token differs.

Needs torch, transformers, safetensors and numpy from PyPI."""
import argparse, json, os, subprocess, sys, tempfile

import numpy, torch, transformers
from safetensors.torch import load_file

ZERO_CENTRED = ('input_layernorm.weight', 'post_attention_layernorm.weight', 'q_norm.weight', 'k_norm.weight', 'model.norm.weight')


def plain_name(name):
    """The name of a tensor in the stock text-only model."""
    if name.startswith('model.language_model.'): return 'model.' + name[len('model.language_model.'):]
    return name[len('language_model.'):] if name.startswith('language_model.') else name


def unpack(words, bits, k):
    """Codes of (n, words) u32, element 0 in the lowest bits; (n, k)."""
    raw = words.numpy().view(numpy.uint8)
    stream = numpy.unpackbits(raw, axis=1, bitorder='little').reshape(raw.shape[0], -1, bits)[:, :k]
    return (stream.astype(numpy.int32) << numpy.arange(bits, dtype=numpy.int32)).sum(axis=2)


def dequantised(folder, config):
    """All tensors of the trunk as f32, named and laid out as the stock model wants them."""
    files = [f for f in sorted(os.listdir(folder)) if f.endswith('.safetensors') and not f.startswith('mtp')]
    tensors = {plain_name(k): v for f in files for k, v in load_file(os.path.join(folder, f)).items()}
    tensors = {k: v for k, v in tensors.items() if not k.startswith(('mtp.', 'visual.', 'vision', 'model.visual'))}
    quant = config.get('quantization')
    out = {}
    for name, t in tensors.items():
        if name.endswith(('.scales', '.biases')): continue
        base = name[:-len('.weight')] if name.endswith('.weight') else name
        if base + '.scales' in tensors:
            scales, biases = tensors[base + '.scales'].double(), tensors[base + '.biases'].double()
            own = quant.get(base) if isinstance(quant.get(base), dict) else quant
            group, bits = own['group_size'], own['bits']
            codes = torch.from_numpy(unpack(t, bits, scales.shape[1] * group)).double()
            t = (codes.reshape(len(codes), -1, group) * scales[:, :, None] + biases[:, :, None]).reshape(len(codes), -1)
        elif quant is not None and name.endswith('conv1d.weight'):
            t = t.transpose(1, 2)  # (channels, taps, 1) in this layout
        elif quant is not None and name.endswith(ZERO_CENTRED):
            t = t.double() - 1  # stored as 1 + w
        out[name] = t.float().contiguous()
    return out


def stock_model(folder):
    with open(os.path.join(folder, 'config.json')) as f: config = json.load(f)
    text = dict(config.get('text_config', config))
    weights = dequantised(folder, config)
    for key in ('quantization', 'quantization_config', 'dtype', 'torch_dtype', 'architectures'): text.pop(key, None)
    stock = transformers.models.qwen3_5
    c = stock.configuration_qwen3_5.Qwen3_5TextConfig(**text)
    c._attn_implementation = 'eager'
    model = stock.modeling_qwen3_5.Qwen3_5ForCausalLM(c).float().eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    missing = [m for m in missing if not (m == 'lm_head.weight' and text.get('tie_word_embeddings'))]
    if missing or unexpected: sys.exit(f'{folder}: tensors missing {missing[:3]}, unexpected {unexpected[:3]}')
    model.tie_weights()
    return model


def our_logits(args, folder, ids, activations, scratch):
    with open(os.path.join(scratch, 'ids'), 'w') as f: f.write(','.join(map(str, ids)))
    path = os.path.join(scratch, 'logits.safetensors')
    subprocess.run([args.verbatim, 'run', '-m', folder, '--ids', '@' + os.path.join(scratch, 'ids'), '-n', '0', '--all-logits',
                    '--logits-out', path, '--activations', str(activations), '--draft', 'none', '--json'],
                   check=True, stdout=subprocess.DEVNULL)
    return load_file(path)['logits']


def compare(want, ours, total):
    w, o = torch.log_softmax(want.double(), -1), torch.log_softmax(ours.double(), -1)
    kl = (w.exp() * (w - o)).sum(-1)
    total['rows'] += len(kl)
    total['kl'] += kl.sum().item()
    total['max_kl'] = max(total['max_kl'], kl.max().item())
    total['max_difference'] = max(total['max_difference'], (want - ours).abs().max().item())
    total['other_choice'] += (want.argmax(-1) != ours.argmax(-1)).sum().item()


def measure(args, folder):
    model = stock_model(folder)
    with open(args.reference) as f: prompts = json.load(f)
    totals = {a: dict(rows=0, kl=0.0, max_kl=0.0, max_difference=0.0, other_choice=0) for a in args.activations}
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        for p in prompts:
            ids = p['prompt_ids'] + p['greedy_ids']
            first = len(p['prompt_ids']) - 1
            want = model(torch.tensor([ids])).logits[0, first:].float()
            for a in args.activations:
                compare(want, our_logits(args, folder, ids, a, scratch)[first:], totals[a])
    for a in args.activations:
        t = totals[a]
        t['mean_kl'] = t.pop('kl') / t['rows']
        yield dict(model=os.path.basename(folder.rstrip('/')), activations=a, **t)


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('models', nargs='+', metavar='MODEL')
    p.add_argument('--verbatim', default='build/verbatim')
    p.add_argument('--reference', default=os.path.join(os.environ.get('VERBATIM_SHARED', '../shared'), 'fixtures/reference.json'))
    p.add_argument('--activations', type=int, nargs='+', default=[8, 16])
    p.add_argument('--json', action='store_true')
    args = p.parse_args()
    if not os.path.exists(args.reference): p.error(f'--reference {args.reference}: is absent, expected a JSON list of {{"prompt_ids", "greedy_ids"}}')
    torch.set_num_threads(2)
    for folder in args.models:
        for r in measure(args, folder):
            if args.json: print(json.dumps(r))
            else: print('{model}: activations {activations}: {rows} rows, mean KL {mean_kl:.2e}, largest {max_kl:.2e}, '
                        'largest logit difference {max_difference:.4f}, other choice at {other_choice}'.format(**r))


if __name__ == '__main__': main()
