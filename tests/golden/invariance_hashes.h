/* Golden values of test_invariance.c: one logits hash per model and prompt, the same on every CPU. */
{"bf16", "/models/atto", true, 8, {
    "6bfcfc6dbe859d2224036e738c3c0dccb2aa25346515c6215cf1b4aa13df2a60",
    "cc9504850b457f80c337b4f1db22effe8beb868ca75d1adc47a36dddb2a47ae4",
    "6b809574fc51c89a3b7027d64d85cab7b150bdb55dcd0eba5e0745fa18d88a3b",
    "637be627e5b432e7941cd774aa70cadd55807392a3ea334d9426fabb32b72062"}},
{"4 bit", "/models/atto", false, 8, {
    "5ff86ee0060294765fb2cbc0a1cd42df9b188ba3fc2df96226cfb9efd06ae62f",
    "4dc0bc3694f7c4b556c94f612c3da4b1b352ad0fe37a9a06aa3538ef96afd74e",
    "33d3b78b5ed9c6974662e0abdfbf0704256c4631a45c0bfaae3d3f9e4484a45e",
    "f22ea66d07d6f898ba1c80149f332ac46a85900fa550daae249fa62732303d20"}},
{"4 bit, 16-bit activations", "/models/atto", false, 16, {
    "25e93edbf3de09ba3d817b6bc48f825abe97c121c866d535094b6759a1d6aead",
    "dfaa873f83428b8a74e4a4f61c48b5d3a3cc8f5dd2958909d12da846b7687821",
    "a7c429af1639d1410160fee1177c30b5886ce20503d7cbf4c4fb622116dd1763",
    "30d2888d4ff67b33bc9660a72fc641a5689d6a058bd4444cd041242b2a5803b2"}},
{"qwen35-moe", "/fixtures/tiny/qwen35-moe", true, 8, {
    "29104f8afc2680c0df63c235f5608b7b9166a4a987d5ba862f385ad55cd3f397",
    "4a900ae6b3471d18519ac55ec0d0e4ace9962a0740199218c84c7360ecaffa05",
    "dfd3ef37377f131f439e26af6ea09fac07c650aaeed29a5423458b2050a54219",
    "050275538770fbfc61c3d15b5faf9833fc1ddd9b786882c4d8c519c0cc5c0d65"}},
