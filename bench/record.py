#!/usr/bin/env python3
"""Runs `verbatim bench --json` and appends one line to a machine's table, bench/results/MACHINE.csv.

usage: bench/record.py [--verbatim build/verbatim] [--serve] MACHINE [LEVEL...] [-- options of verbatim bench]

With --serve: `verbatim bench serve` instead, one line for each arm, to bench/results/serve.csv.

MACHINE names the file; LEVEL is c, avx2, avx512 or amx (default: what the CPU has). Times are medians of the
run's interleaved repeats; limits (read, contract) are of the same run."""
import argparse, csv, datetime, json, os, subprocess, sys

COLUMNS = ['date', 'commit', 'cpu', 'level', 'geometry', 'weights', 'activations', 'threads', 'ctx', 'read_gb_per_s',
           'contract_gops', 'decode_tokens_per_s', 'decode_gb_per_s', 'percent_of_read', 'rows16_seconds', 'rows16_ratio',
           'rows16_factor', 'prefill_tokens_per_s', 'percent_of_contract', 'linear_s', 'attention_s', 'delta_net_s',
           'elementwise_s', 'sampling_s', 'decode_spread', 'load_s', 'times_packed']


SERVE_COLUMNS = ['date', 'commit', 'machine', 'level', 'model', 'concurrency', 'draft', 'tokens_per_s', 'spread', 'ratio', 'first_token_s', 'accepted',
                 'tokens', 'repeats']


def append(path, columns, rows):
    new = not os.path.exists(path)
    with open(path, 'a', newline='') as f:
        w = csv.DictWriter(f, columns, lineterminator='\n')
        if new: w.writeheader()
        for row in rows: w.writerow({k: float(f'{v:.4g}') if isinstance(v, float) else v for k, v in row.items()})


def serve(args, options, folder, commit):
    model = options[options.index('-m') + 1] if '-m' in options else 'models/atto'
    for level in args.levels or [None]:
        env = dict(os.environ, **({'VERBATIM_CPU': level} if level else {}))
        run = subprocess.run([args.verbatim, 'bench', 'serve', '--json'] + options, env=env, capture_output=True, text=True)
        if run.returncode != 0: sys.exit(run.stderr)
        j = json.loads(run.stdout)
        append(os.path.join(folder, 'serve.csv'), SERVE_COLUMNS,
               [dict({c: a[c] for c in SERVE_COLUMNS if c in a}, date=datetime.date.today().isoformat(), commit=commit, machine=args.machine,
                     level=(level or '') + ('+vnni' if j.get('vnni') else ''), model=os.path.basename(model), tokens=j['tokens'], repeats=j['repeats']) for a in j['arms']])
        print(f"{level or 'the level of the CPU'}: eight requests together {j['eight_to_one']:.2f} times the tokens per second of one")


def main():
    argv, options = sys.argv[1:], []
    if '--' in argv: argv, options = argv[:argv.index('--')], argv[argv.index('--') + 1:]
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('machine')
    p.add_argument('levels', nargs='*')
    p.add_argument('--verbatim', default='build/verbatim')
    p.add_argument('--serve', action='store_true')
    args = p.parse_args(argv)
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'results')
    path = os.path.join(folder, args.machine + '.csv')
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=folder, capture_output=True, text=True).stdout.strip()
    if args.serve: return serve(args, options, folder, commit)
    for level in args.levels or [None]:
        env = dict(os.environ, **({'VERBATIM_CPU': level} if level else {}))
        run = subprocess.run([args.verbatim, 'bench', '--json'] + (options or ['--geometry', 'qwen3.5-0.8b']), env=env, capture_output=True, text=True)
        if run.returncode != 0: sys.exit(run.stderr)
        j = json.loads(run.stdout)
        wide = next(w for w in j['widths'] if w['rows'] == 16)
        row = dict({c: j[c] for c in COLUMNS if c in j}, date=datetime.date.today().isoformat(), commit=commit,
                   level=j['level'] + ('+vnni' if j.get('vnni') else ''), geometry=os.path.basename(j['geometry']),
                   decode_tokens_per_s=j['decode']['tokens_per_s'], decode_gb_per_s=j['decode']['gb_per_s'],
                   percent_of_read=j['decode']['percent_of_read'], rows16_seconds=wide['seconds'], rows16_ratio=wide['ratio'],
                   rows16_factor=wide['factor'], prefill_tokens_per_s=j['prefill']['tokens_per_s'],
                   percent_of_contract=j['prefill']['percent_of_contract'], decode_spread=j['spread']['decode'],
                   times_packed=j['memory']['times_packed'], **{c + '_s': s for c, s in j['classes'].items()})
        append(path, COLUMNS, [row])
        print(f"{row['level']}: decode {row['decode_tokens_per_s']} tokens/s ({row['percent_of_read']}% of read), 16 rows {row['rows16_ratio']} "
              f"(factor {row['rows16_factor']}), prefill {row['prefill_tokens_per_s']} tokens/s ({row['percent_of_contract']}% of contract)")


if __name__ == '__main__': main()
