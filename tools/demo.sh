#!/bin/sh
# What `make demo` shows: the embedded model answers once, with its speed and the hash of its logits.
set -eu
verbatim=${1:-build/verbatim}
prompt="Count from one to ten."
echo "\$ verbatim run --greedy \"$prompt\""
"$verbatim" run --greedy --json "$prompt" | python3 -c '
import json, sys
r = json.load(sys.stdin)
t, n, d = r["timings"], r["numerics"], r["draft"]
print(r["text"])
print()
print("prompt    %d tokens, %.0f tokens/s" % (len(r["prompt_token_ids"]), t["prefill_tokens_per_s"]))
print("answer    %d tokens, %.0f tokens/s (drafts: %s, %d of %d accepted)"
      % (len(r["token_ids"]), t["decode_tokens_per_s"], d["kind"], d["accepted"], d["proposed"]))
print("logits    sha256 %s" % r["logits_sha256"])
print("numerics  class %s, contract %d, %d-bit activations, level %s, %d threads"
      % (n["class"], n["contract"], n["activations"], n["level"], n["threads"]))'
cat <<END

The hash is the same on every CPU level, thread count, batch and speculation width. Next:
  VERBATIM_CPU=c $verbatim run --greedy --json --draft none "$prompt"    # the same logits_sha256
  $verbatim chat
  $verbatim bench --geometry qwen3.5-0.8b
END
