/* Golden values of test_invariance.c: one logits hash per model and prompt, the same on every CPU. */
{"bf16", "/models/atto", true, 8, {"", "", "", ""}},
{"4 bit", "/models/atto", false, 8, {"", "", "", ""}},
{"4 bit, 16-bit activations", "/models/atto", false, 16, {"", "", "", ""}},
