"""The measuring half of compare_llama_cpp.sh: MODEL.gguf THREADS ROUNDS [smollm2.json, for agreement with the f32 reference]."""
import json
import os
import statistics
import subprocess
import sys
import time

import llama_cpp
from llama_cpp import _internals

DEPTH, ROWS, STEPS = 512, 16, 24


def decode(llm, batch, tokens, past, all_rows):
    batch.set_batch(batch=tokens, n_past=past, logits_all=all_rows)
    start = time.perf_counter()
    llm._ctx.decode(batch)
    llama_cpp.llama_synchronize(llm._ctx.ctx)
    return time.perf_counter() - start


def llama(llm, out):
    """Seconds: prefill of DEPTH tokens, steps of one row behind them, steps of ROWS rows behind them, logits of all rows."""
    vocab = llm.n_vocab()
    ids = [(i * 7919 + 13) % min(vocab, 40000) for i in range(DEPTH + STEPS)]
    batch = _internals.LlamaBatch(n_tokens=DEPTH, embd=0, n_seq_max=1)
    for _ in range(2):
        llm._ctx.kv_cache_clear()
        out["prefill"].append(decode(llm, batch, ids[:DEPTH], 0, False))
    for i in range(STEPS):
        out["decode"].append(decode(llm, batch, [ids[DEPTH + i]], DEPTH + i, True))
    for _ in range(STEPS // 2):
        llm._ctx.kv_cache_seq_rm(0, DEPTH, -1)
        out["rows"].append(decode(llm, batch, ids[DEPTH : DEPTH + ROWS], DEPTH, True))


def ours(model, threads, out):
    text = subprocess.run(
        [os.environ["VERBATIM"], "bench", "-m", model, "-t", str(threads), "-c", str(DEPTH), "--prefill", str(DEPTH),
         "--repeats", "5", "--json"], check=True, capture_output=True, text=True).stdout
    j = json.loads(text)
    w = next(w for w in j["widths"] if w["rows"] == ROWS)
    for key, median, best in (
        ("prefill", DEPTH / j["prefill"]["tokens_per_s"], DEPTH / j["prefill"]["best_tokens_per_s"]),
        ("decode", 1 / j["decode"]["tokens_per_s"], 1 / j["decode"]["best_tokens_per_s"]),
        ("rows", w["seconds"], w["best"])):
        out[key].append(median)
        out["best_" + key].append(best)
    return j["cpu"], j["level"]


def agreement(model, threads, path):
    """Teacher forced along the reference texts: positions with the same choice, and the worst gap among the four best."""
    llm = llama_cpp.Llama(model_path=model, n_ctx=1024, n_batch=1024, n_threads=threads, n_threads_batch=threads, logits_all=True,
                          verbose=False)
    same = count = 0
    worst = 0.0
    for case in json.load(open(path))["cases"]:
        prompt, answer = case["prompt_ids"], case["greedy_ids"]
        llm.reset()
        llm.eval(prompt + answer[:-1])
        for i, top in enumerate(case["top4"]):
            row = llm.scores[len(prompt) - 1 + i]
            count += 1
            same += int(row.argmax()) == answer[i]
            for token, logit in top:
                worst = max(worst, abs(float(row[top[0][0]] - row[token]) - (top[0][1] - logit)))
    print(f"\nllama.cpp: {same} of {count} positions the same as the f32 reference, worst gap {worst:.2f}")


def main():
    model, threads, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    keys = ("prefill", "decode", "rows")
    them = {k: [] for k in keys}
    us = {k: [] for k in (*keys, *("best_" + k for k in keys))}
    llm = llama_cpp.Llama(model_path=model, n_ctx=1024, n_batch=DEPTH, n_ubatch=DEPTH, n_threads=threads, n_threads_batch=threads,
                          verbose=False)
    llama(llm, {k: [] for k in keys})  # warm
    for _ in range(rounds):
        llama(llm, them)
        cpu, level = ours(model, threads, us)
    print(f"{os.path.basename(model)}, {cpu}, {threads} threads, level {level}; llama-cpp-python {llama_cpp.__version__}; "
          f"{rounds} rounds in turn; median (best)\n")
    print("| | verbatim | llama.cpp | verbatim / llama.cpp |\n|---|---|---|---|")
    rate = lambda n, s: f"{n / s:.0f}"
    ms = lambda n, s: f"{s * 1e3:.2f} ms"
    for key, label, n, show in (("prefill", f"prefill of {DEPTH}, tokens/s", DEPTH, rate),
                                ("decode", f"decode at {DEPTH}, tokens/s", 1, rate),
                                ("rows", f"a step of {ROWS} rows at {DEPTH}", 1, ms)):
        um, ub = statistics.median(us[key]), min(us["best_" + key])
        tm, tb = statistics.median(them[key]), min(them[key])
        faster = (tm / um, tb / ub) if show is rate else (um / tm, ub / tb)
        print(f"| {label} | {show(n, um)} ({show(n, ub)}) | {show(n, tm)} ({show(n, tb)}) | {faster[0]:.2f} ({faster[1]:.2f}) |")
    u1, t1 = min(us["best_decode"]), min(them["decode"])
    print(f"| {ROWS} rows in steps of one row, best | {min(us['best_rows']) / u1:.2f} | {min(them['rows']) / t1:.2f} | |")
    if len(sys.argv) > 4:
        agreement(model, threads, sys.argv[4])


main()
