"""The measuring half of compare_llama_cpp.sh: MODEL.gguf THREADS ROUNDS [smollm2.json, for agreement with the f32 reference].

Speaks to llama.cpp through its C interface, as llama-cpp-python binds it: its Python classes change from release to release."""
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import time

import llama_cpp as L
import numpy

DEPTH, ROWS, STEPS, CONTEXT = 512, 16, 24, 1024
KEYS = ("prefill", "decode", "rows")


class Peer:
    """llama.cpp on one model; repack: weights in the layout of its AMX and repacking code, its own default."""

    def __init__(self, path, threads, repack):
        mp = L.llama_model_default_params()
        mp.use_extra_bufts = repack
        self.model = L.llama_model_load_from_file(path.encode(), mp)
        cp = L.llama_context_default_params()
        cp.n_ctx = cp.n_batch = cp.n_ubatch = CONTEXT
        cp.n_threads = cp.n_threads_batch = threads
        self.ctx = self.model and L.llama_init_from_model(self.model, cp)
        if not self.ctx:
            sys.exit(f"compare_llama_cpp: llama.cpp does not load {path}")
        self.memory = L.llama_get_memory(self.ctx)
        self.vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(self.model))
        self.batch = L.llama_batch_init(CONTEXT, 0, 1)

    def close(self):
        L.llama_batch_free(self.batch)
        L.llama_free(self.ctx)
        L.llama_model_free(self.model)

    def forward(self, tokens, past, all_rows):
        """Seconds of one forward step; logits of every row, or of the last."""
        b = self.batch
        b.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0] = token, past + i, 1, 0
            b.logits[i] = all_rows or i == len(tokens) - 1
        start = time.perf_counter()
        status = L.llama_decode(self.ctx, b)
        L.llama_synchronize(self.ctx)
        seconds = time.perf_counter() - start
        if status != 0:
            sys.exit(f"compare_llama_cpp: llama_decode of {len(tokens)} rows behind {past}: status {status}")
        return seconds

    def forget(self, start):
        L.llama_memory_seq_rm(self.memory, 0, start, -1)

    def row(self, i):
        return numpy.ctypeslib.as_array(L.llama_get_logits_ith(self.ctx, i), shape=(self.vocab,))


def measure(peer, out):
    """Seconds: prefill of DEPTH tokens, steps of one row behind them, steps of ROWS rows behind them with all their logits."""
    ids = [(i * 7919 + 13) % min(peer.vocab, 40000) for i in range(DEPTH + STEPS)]
    for _ in range(2):
        peer.forget(0)
        out["prefill"].append(peer.forward(ids[:DEPTH], 0, False))
    for i in range(STEPS):
        out["decode"].append(peer.forward([ids[DEPTH + i]], DEPTH + i, True))
    for _ in range(STEPS // 2):
        peer.forget(DEPTH)
        out["rows"].append(peer.forward(ids[DEPTH : DEPTH + ROWS], DEPTH, True))


def ours(model, threads, level, out):
    text = subprocess.run(
        [os.environ["VERBATIM"], "bench", "-m", model, "-t", str(threads), "-c", str(DEPTH), "--prefill", str(DEPTH),
         "--repeats", "5", "--json"], check=True, capture_output=True, text=True,
        env=dict(os.environ, **({"VERBATIM_CPU": level} if level else {}))).stdout
    j = json.loads(text)
    w = next(w for w in j["widths"] if w["rows"] == ROWS)
    for key, median, best in (
        ("prefill", DEPTH / j["prefill"]["tokens_per_s"], DEPTH / j["prefill"]["best_tokens_per_s"]),
        ("decode", 1 / j["decode"]["tokens_per_s"], 1 / j["decode"]["best_tokens_per_s"]),
        ("rows", w["seconds"], w["best"])):
        out[key].append(median)
        out["best " + key].append(best)
    return j["cpu"], j["level"]


def softmax(values):
    top = max(values)
    e = [math.exp(v - top) for v in values]
    return [v / sum(e) for v in e]


def agreement(peer, path):
    """Teacher forced along the reference texts: positions with the same choice, worst gap and KL among the four best."""
    with open(path) as f:
        cases = json.load(f)["cases"]
    same = count = 0
    worst = kl = 0.0
    for case in cases:
        prompt, answer = case["prompt_ids"], case["greedy_ids"]
        peer.forget(0)
        peer.forward(prompt + answer[:-1], 0, True)
        for i, top in enumerate(case["top4"]):
            row = peer.row(len(prompt) - 1 + i)
            count += 1
            same += int(row.argmax()) == answer[i]
            want, got = [logit for _, logit in top], [float(row[token]) for token, _ in top]
            worst = max([worst] + [abs((got[0] - g) - (want[0] - w)) for g, w in zip(got, want)])
            kl += sum(p * math.log(p / q) for p, q in zip(softmax(want), softmax(got)))
    return f"{same} of {count} positions the same as the f32 reference, worst gap {worst:.2f}, mean KL of the four best {kl / count:.1e}"


def survives(model, threads, repack):
    """One prefill in a process of its own: a build of llama.cpp may crash in its AMX code (see the script)."""
    return subprocess.run([sys.executable, __file__, "--probe", model, str(threads), str(int(repack))],
                          capture_output=True).returncode == 0


def table(columns, times):
    """A row for each measurement: median (best; spread of the middle half in percent of the median)."""
    def cell(who, key, per):
        t = sorted(times[who][key])
        best = min(times[who].get("best " + key, t))
        mid = statistics.median(t)
        spread = 100 * (t[(3 * len(t)) // 4] - t[len(t) // 4]) / mid
        return (f"{per / mid:.0f} ({per / best:.0f}; {spread:.0f}%)" if per else f"{mid * 1e3:.1f} ({best * 1e3:.1f}; {spread:.0f}%)")

    print("| | " + " | ".join(columns) + " |\n|---" * 1 + "|---" * len(columns) + "|")
    for key, label, per in (("prefill", f"prefill of {DEPTH}, tokens/s", DEPTH), ("decode", f"decode at {DEPTH}, tokens/s", 1),
                            ("rows", f"step of {ROWS} rows at {DEPTH}, ms", 0)):
        print(f"| {label} | " + " | ".join(cell(c, key, per) for c in columns) + " |")
    print(f"| {ROWS} rows in steps of one row | " + " | ".join(
        f"{statistics.median(times[c]['rows']) / statistics.median(times[c]['decode']):.2f}" for c in columns) + " |")


def main():
    if sys.argv[1] == "--probe":
        measure(Peer(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1"), {k: [] for k in KEYS})
        return
    model, threads, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    L.llama_log_set(quiet_log, None)
    peers = {}
    for name, repack in (("llama.cpp", True), ("llama.cpp, not repacked", False)):
        if survives(model, threads, repack):
            peers[name] = Peer(model, threads, repack)
        else:
            print(f"{name}: crashes on this machine, left out\n")
    levels = os.environ.get("LEVELS", "").split() or [None]
    columns, times, cpu = [], {}, ""
    for peer in peers.values():
        measure(peer, {k: [] for k in KEYS})  # warm
    for _ in range(rounds):
        for level in levels:
            out = {k: [] for k in (*KEYS, *("best " + k for k in KEYS))}
            cpu, name = ours(model, threads, level, out)
            name = "verbatim, " + name
            for key, t in out.items():
                times.setdefault(name, {}).setdefault(key, []).extend(t)
        for name, peer in peers.items():
            measure(peer, times.setdefault(name, {k: [] for k in KEYS}))
    columns = list(times)
    print(f"{datetime.date.today()}, {os.path.basename(model)}, {cpu}, {threads} threads, llama-cpp-python {L.__version__}, {rounds} rounds in "
          "turn; median (best; middle half of all measurements, llama.cpp's, or of the rounds' medians, ours)\n")
    table(columns, times)
    if len(sys.argv) > 4:
        print()
        for name, peer in peers.items():
            print(f"{name}: {agreement(peer, sys.argv[4])}")
    for peer in peers.values():
        peer.close()


@L.llama_log_callback
def quiet_log(level, text, data):
    del level, text, data


main()
