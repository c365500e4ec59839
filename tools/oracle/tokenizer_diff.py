#!/usr/bin/env python3
"""Random differential run of our tokenizers against the `tokenizers` package (PyPI; made with 0.23.3).

    python3 -m venv .venv && .venv/bin/pip install tokenizers==0.23.3
    .venv/bin/python tools/oracle/tokenizer_diff.py build/tests/tools/text_harness [--strings 20000] [--seed 1]
        [--only NAME] [--shared ../shared]

Every string goes through a tokenizer of each kind in turn: the shared qwen3 and atto files, and small ones trained
here on generated text: llama2-, mistral-, gemma-, llama3-, deepseek-, gpt2- and o200k-like, Unigram with and
without byte fallback, and random chains of normalizers, pre-tokenizers and decoders. Compared are ids (all added
tokens; special ones hidden; with what the post-processor adds), the decoding of those ids and of random ids, with
and without special tokens, and the sum of a stream's pieces. Exit code 1 when anything differs.
"""
import argparse
import collections
import json
import os
import random
import subprocess
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = ("the of and to in is that for it as was with be by on not he his but at are this have from or had an they "
         "which one you were all her she there would their we him been has when who will no more if out so up said what "
         "its about than into them can only other time new some could these two may first then do any like my now over "
         "such our man me even most made after also did many off before must well back through years much where your way "
         "down should because long each just state those people too mr how little good world make very year still see "
         "own work men day get here between both life being under three never know same last another while us might "
         "don't it's we'll I'm they've HELLO World Größe naïve façade élève über straße привет мир слово данные код "
         "español niño mañana 日本語 中文 分词 テスト カタカナ 한국어 안녕하세요 العربية שלום हिन्दी ไทย ελληνικά").split()
SPACES = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\u200b", "\u0085", "\x0b", "\x1c"]
PUNCT = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "—", "–", "…", "“", "”", "‘", "’", "«", "»", "。", "、", "！", "€", "£", "№", "©", "×"]
RANGES = [(0x20, 0x7e), (0xa0, 0x17f), (0x180, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x590, 0x5ff), (0x600, 0x6ff),
          (0x900, 0x97f), (0xe00, 0xe7f), (0x1100, 0x11ff), (0x1e00, 0x1eff), (0x2000, 0x206f), (0x20a0, 0x20bf), (0x2100, 0x218f),
          (0x2460, 0x24ff), (0x3000, 0x30ff), (0x3130, 0x318f), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xf900, 0xfaff), (0xfb00, 0xfb4f),
          (0xff00, 0xffef), (0x10300, 0x1034f), (0x1d400, 0x1d7ff), (0x1f300, 0x1f64f), (0x1f900, 0x1f9ff), (0x20000, 0x2a6df), (0, 0x1f), (0xfff0, 0xfffd), (0x2580, 0x259f)]


def random_char(r):
    a, b = r.choice(RANGES)
    return chr(r.randint(a, b))


def random_text(r, extra):
    out = []
    for _ in range(r.choice([1, 2, 3, 5, 8, 13, 21])):
        k = r.random()
        if k < 0.35:
            w = r.choice(WORDS)
            out.append(r.choice([w, w, w, w.upper(), w.title()]))
        elif k < 0.6:
            out.append(r.choice(SPACES) * r.choice([1, 1, 1, 2, 5]))
        elif k < 0.72:
            out.append(r.choice(PUNCT) * r.choice([1, 1, 1, 2, 3]))
        elif k < 0.78:
            out.append(str(r.randint(0, 10 ** r.randint(1, 9))))
        elif k < 0.88:
            out.append("".join(random_char(r) for _ in range(r.randint(1, 6))))
        elif k < 0.97 and extra:
            t = r.choice(extra)
            out.append(r.choice([t, t, t, " " + t, t + " ", t[:-1], t[1:], t + t]))
        else:
            out.append(r.choice("ab \n'") * r.randint(1, 60))
    return "".join(out)


def corpus(seed):
    r = random.Random(seed)
    return [" ".join(r.choice(WORDS) + r.choice(["", "", "", ".", ",", "!", "s", "ing", "ed"]) for _ in range(20)) + r.choice(["", "\n", "  "])
            + str(r.randint(0, 9999)) for _ in range(1500)]


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
             r"\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = [f"<0x{i:02X}>" for i in range(256)]
ALPHABET = pre_tokenizers.ByteLevel.alphabet()
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]"]
PLAIN = ["<think>", "</think>", "\n\n\n", "  ", "été"]


def token(text, r=None, **kw):
    if r is not None:
        kw = {k: r.random() < 0.3 for k in ("lstrip", "rstrip", "single_word", "normalized")}
    else:
        kw.setdefault("normalized", False)
    return AddedToken(text, **kw)


BPE_SIZE, UNIGRAM_SIZE = 3000, 1500


def trained_bpe(texts, unk=None, specials=(), alphabet=(), **kw):
    t = Tokenizer(models.BPE(unk_token=unk, **kw))
    return t, trainers.BpeTrainer(vocab_size=BPE_SIZE, special_tokens=list(specials), initial_alphabet=list(alphabet), show_progress=False)


def byte_level(texts, pre, norm=None, ignore=False, post=None):
    t, tr = trained_bpe(texts, alphabet=ALPHABET)
    t.pre_tokenizer = pre
    if norm:
        t.normalizer = norm
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, tr)
    d = json.loads(t.to_str())
    d["model"]["ignore_merges"] = ignore
    t = Tokenizer.from_str(json.dumps(d))
    t.add_special_tokens([token(x) for x in SPECIAL])
    t.add_tokens([token(x) for x in PLAIN])
    if post:
        t.post_processor = post(t)
    return t


def spm_bpe(texts, norm, pre, dec, fuse=True, post=True):
    t, tr = trained_bpe(texts, unk="<unk>", specials=["<unk>", "<s>", "</s>"] + BYTES, byte_fallback=True, fuse_unk=fuse)
    t.normalizer = norm
    t.pre_tokenizer = pre if pre is not None else pre_tokenizers.Metaspace(prepend_scheme="always")
    t.train_from_iterator(texts, tr)
    d = json.loads(t.to_str())
    d["added_tokens"] = [x for x in d["added_tokens"] if x["content"] not in BYTES]
    d["pre_tokenizer"] = None if pre is None else json.loads(pre.__getstate__())
    t = Tokenizer.from_str(json.dumps(d))
    t.decoder = dec
    t.add_special_tokens([token(x) for x in SPECIAL])
    t.add_tokens([token(x) for x in PLAIN])
    if post:
        t.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t


def unigram(texts, norm, pre, dec, fallback):
    t = Tokenizer(models.Unigram())
    t.normalizer = norm
    t.pre_tokenizer = pre
    tr = trainers.UnigramTrainer(vocab_size=UNIGRAM_SIZE, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"] + (BYTES if fallback else []),
                                 show_progress=False)
    t.train_from_iterator(texts, tr)
    d = json.loads(t.to_str())
    d["model"]["byte_fallback"] = fallback
    d["added_tokens"] = [x for x in d["added_tokens"] if x["content"] not in BYTES]
    t = Tokenizer.from_str(json.dumps(d))
    t.decoder = dec
    t.add_special_tokens([token(x) for x in SPECIAL])
    return t


LLAMA2_DECODER = lambda: decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
GEMMA_DECODER = lambda: decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])


def random_normalizer(r):
    n = normalizers
    pick = lambda: r.choice([n.NFC, n.NFD, n.NFKC, n.NFKD, n.Lowercase, n.StripAccents, lambda: n.Strip(r.random() < 0.5, r.random() < 0.5),
                             lambda: n.Prepend(r.choice(["▁", "x", " "])), lambda: n.Replace(" ", "▁"), lambda: n.Replace("aa", "b"),
                             lambda: n.Replace(Regex(" {2,}"), " "), lambda: n.Replace(Regex(r"\s"), "_"), lambda: n.Replace(Regex(r"\p{N}"), "0")])()
    k = r.randint(0, 3)
    return None if k == 0 else pick() if k == 1 else n.Sequence([pick() for _ in range(k)])


def random_pretokenizer(r):
    p = pre_tokenizers
    # No pattern that matches nothing: on those the stock library panics or loops for ever.
    how = lambda: r.choice(["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"])
    pattern = lambda: r.choice([" ", "e", "the", Regex(r"\s+"), Regex(r"\w+"), Regex(r"\d{1,2}"), Regex(r"[^\s\w]"), Regex(r"\s+(?!\S)|\s"),
                                Regex(r"\p{Lu}"), Regex(r" ?[^(\s|[.,!?…]e)]+"), Regex(r"\bt\w*"), Regex("(?<=e)a|[^[:alpha:]]x"), Regex(LLAMA3), Regex(O200K), Regex("[\r\n]")])
    pick = lambda: r.choice([lambda: p.Split(pattern(), how(), r.random() < 0.3), lambda: p.Digits(r.random() < 0.5), p.Whitespace, p.WhitespaceSplit,
                             lambda: p.Punctuation(how()), lambda: p.CharDelimiterSplit(r.choice("e_ ")),
                             lambda: p.Metaspace("▁", r.choice(["always", "first", "never"]), r.random() < 0.6),
                             lambda: p.ByteLevel(r.random() < 0.5, True, r.random() < 0.5)])()
    k = r.randint(1, 3)
    return pick() if k == 1 else p.Sequence([pick() for _ in range(k)])


def random_decoder(r):
    d = decoders
    tokens = lambda: r.choice([lambda: d.Replace("▁", " "), lambda: d.Replace("e", "E"), d.ByteFallback, lambda: d.Strip(r.choice(" e"), r.randint(0, 2), 0),
                               lambda: d.Metaspace("▁", r.choice(["always", "first", "never"]))])()
    fused = lambda: r.choice([lambda: d.Replace("aa", "b"), lambda: d.Strip(r.choice(" e"), r.randint(0, 2), r.randint(0, 2)),
                              lambda: d.Metaspace("▁", r.choice(["always", "never"]))])()
    out = [tokens() for _ in range(r.randint(0, 2))]
    if r.random() < 0.7:
        out.append(r.choice([d.Fuse, d.ByteLevel])())
        out += [fused() for _ in range(r.randint(0, 2))]
    return None if not out else out[0] if len(out) == 1 else d.Sequence(out)


trained = {}


def random_tokenizer(r, texts):
    """A chain of random steps around a small model; added tokens with random flags."""
    bases = [lambda: unigram(texts, None, pre_tokenizers.Metaspace(), None, False), lambda: unigram(texts, None, pre_tokenizers.Metaspace(), None, True),
             lambda: spm_bpe(texts, None, pre_tokenizers.Metaspace(), None, False, False), lambda: spm_bpe(texts, None, pre_tokenizers.Metaspace(), None),
             lambda: byte_level(texts, pre_tokenizers.ByteLevel(False))]
    i = r.choice([0, 1, 2, 3, 4, 4])
    if i not in trained:
        trained[i] = bases[i]().to_str()
    d = json.loads(trained[i])
    d["added_tokens"] = [x for x in d["added_tokens"] if x["content"] in ("<unk>",)]
    t = Tokenizer.from_str(json.dumps(d))
    n = random_normalizer(r)
    if n is not None:
        t.normalizer = n
    if r.random() < 0.8:
        t.pre_tokenizer = random_pretokenizer(r)
    t.decoder = random_decoder(r)
    t.add_special_tokens([token(x, r) for x in SPECIAL])
    # No token of white space: with lstrip or rstrip beside it the stock library panics or loops for ever.
    t.add_tokens([token(x, r) for x in PLAIN if not x.isspace()] + [token(x, r) for x in ["the", "The", "-", "é"]])
    return t


def kinds(seed, shared):
    texts = corpus(seed)
    p, n = pre_tokenizers, normalizers
    out = {}
    for name, folder in (("qwen3", "fixtures/tokenizers/qwen3"), ("atto", "models/atto")):
        f = os.path.join(shared, folder, "tokenizer.json")
        if os.path.exists(f):
            out[name] = lambda f=f: Tokenizer.from_file(f)
        else:
            print(f"{name}: {f} is absent, left out")
    split = lambda x: p.Split(Regex(x), "isolated")
    bl = lambda: p.ByteLevel(False, True, False)
    bos = lambda t: processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing("<s> $A </s>", special_tokens=[
        ("<s>", t.token_to_id("<s>")), ("</s>", t.token_to_id("</s>"))])])
    out["llama2"] = lambda: spm_bpe(texts, n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")]), None, LLAMA2_DECODER())
    out["mistral"] = lambda: spm_bpe(texts, None, p.Metaspace("▁", "first", False), LLAMA2_DECODER(), False)
    out["gemma"] = lambda: spm_bpe(texts, n.Replace(" ", "▁"), p.Split(" ", "merged_with_previous"), GEMMA_DECODER())
    out["llama3"] = lambda: byte_level(texts, p.Sequence([split(LLAMA3), bl()]), None, True, bos)
    out["qwen35"] = lambda: byte_level(texts, p.Sequence([split(QWEN35), bl()]), n.NFC())
    out["gpt2"] = lambda: byte_level(texts, p.ByteLevel(True))
    out["o200k"] = lambda: byte_level(texts, p.Sequence([split(O200K), bl()]), None, True)
    out["deepseek3"] = lambda: byte_level(texts, p.Sequence([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK3), bl()]))
    out["deepseek1"] = lambda: byte_level(texts, p.Sequence([split("[\r\n]"), split("\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓ]+"), split("\\s?[!-/:-~！-／：-～‘-‟　-。]+"),
                                                            split("\\s+$"), split("[一-龥ࠀ-一가-퟿]+"), p.Digits(True), bl()]))
    out["starcoder"] = lambda: byte_level(texts, p.Sequence([p.Digits(True), p.ByteLevel(False)]))
    out["unigram"] = lambda: unigram(texts, n.Sequence([n.NFKC(), n.Replace(Regex(" {2,}"), " ")]), p.Metaspace(), decoders.Metaspace(), False)
    out["unigram_bytes"] = lambda: unigram(texts, n.NFKC(), p.Metaspace("▁", "first"), LLAMA2_DECODER(), True)
    out["unigram_whole"] = lambda: unigram(texts, n.Replace(" ", "▁"), p.WhitespaceSplit(), GEMMA_DECODER(), True)
    for i in range(40):
        out[f"random{i}"] = lambda i=i: random_tokenizer(random.Random(1000 * seed + i), texts)
    return out


class Ours:
    def __init__(self, program):
        self.p = subprocess.Popen([program, "--stdin-tokenizers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, lines):
        """Written and read in turns small enough for the pipes."""
        out = []
        for i in range(0, len(lines), 16):
            part = lines[i:i + 16]
            self.p.stdin.write("".join(x + "\n" for x in part).encode())
            self.p.stdin.flush()
            out += [json.loads(self.p.stdout.readline()) for _ in part]
        return out


panics = collections.Counter()


def compare(name, t, ours, r, count, differences):
    text = t.to_str()
    answer = ours.ask(['{"tokenizer": ' + json.dumps(json.loads(text)) + "}"])[0]
    if "error" in answer:
        differences[("load", name)].append(("tokenizer.json", "loads", answer["error"]))
        return
    added = [x.content for x in t.get_added_tokens_decoder().values()]
    texts = [random_text(r, added) for _ in range(count)]
    size = t.get_vocab_size()
    ask, want = [], []
    for s in texts:
        try:
            t.encode_special_tokens = False
            t.encode(s)
            t.encode_special_tokens = True
            t.encode(s)
        except BaseException as e:  # the stock library panics on some overlapping matches of added tokens
            if isinstance(e, KeyboardInterrupt):
                raise
            panics[str(e)[:60]] += 1
            continue
        hide, special = r.random() < 0.3, r.random() < 0.3
        t.encode_special_tokens = hide
        ids = t.encode(s, add_special_tokens=special).ids
        ask.append(json.dumps({"text": s, "parse_special": not hide, "add_special": special}))
        want.append(("encode", s, {"ids": ids}))
        some = ids if r.random() < 0.6 else [r.randrange(size + 3) for _ in range(r.randint(0, 12))]
        skip = r.random() < 0.3
        try:
            decoded = t.decode(some, skip_special_tokens=skip)
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            panics[str(e)[:60]] += 1
            ask.pop()
            want.pop()
            continue
        ask.append(json.dumps({"ids": some, "skip_special": skip}))
        want.append(("decode", some, {"text": decoded}))
        ask.append(json.dumps({"ids": some, "skip_special": skip, "stream": True}))
        want.append(("stream", some, {"text": decoded}))
    for a, (kind, what, w) in zip(ours.ask(ask), want):
        if a != w:
            differences[(kind, name)].append((what, w, a))


def write_cases(path, seed):
    """Small tokenizers of each kind with a few strings, for tests/data."""
    global BPE_SIZE, UNIGRAM_SIZE
    BPE_SIZE, UNIGRAM_SIZE = 560, 420
    out = []
    for i, (name, make) in enumerate(kinds(seed, "/nonexistent").items()):
        if name.startswith("random") and int(name[6:]) >= 6:
            continue
        t, r = make(), random.Random(seed * 7919 + i)
        added = [x.content for x in t.get_added_tokens_decoder().values()]
        cases = []
        for _ in range(12):
            s, hide, special = random_text(r, added), r.random() < 0.3, r.random() < 0.3
            try:
                t.encode_special_tokens = hide
                ids = t.encode(s, add_special_tokens=special).ids
                cases.append({"text": s, "parse_special": not hide, "add_special": special, "ids": ids, "decoded": t.decode(ids, skip_special_tokens=False)})
            except BaseException:  # a panic of the stock library
                continue
        t.encode_special_tokens = False
        out.append({"name": name, "tokenizer": json.loads(t.to_str()), "cases": cases})
    with open(path, "w") as f:
        json.dump(out, f, separators=(",", ":"), ensure_ascii=True)
        f.write("\n")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("program", nargs="?")
    a.add_argument("--write-cases", metavar="FILE", help="write tests/data/tokenizers.json instead")
    a.add_argument("--strings", type=int, default=20000)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--only")
    a.add_argument("--shared", default=os.environ.get("VERBATIM_SHARED", "../shared"))
    a.add_argument("--show", type=int, default=3)
    o = a.parse_args()
    if o.write_cases:
        write_cases(o.write_cases, o.seed)
        return 0
    ours = Ours(o.program)
    every = {k: v for k, v in kinds(o.seed, o.shared).items() if not o.only or o.only == k}
    count = -(-o.strings // len(every))
    differences = collections.defaultdict(list)
    for i, (name, make) in enumerate(every.items()):
        print(name, end=" ", file=sys.stderr, flush=True)
        compare(name, make(), ours, random.Random(o.seed * 7919 + i), count, differences)
    for (kind, name), l in sorted(differences.items()):
        print(f"{name}: {kind}: {len(l)} differ")
        for what, want, got in l[:o.show]:
            print("   ", repr(what))
            print("      stock", want)
            print("      ours ", got)
    for what, k in panics.most_common():
        print(f"the stock library fails on {k} of them: {what}")
    print(f"{count * len(every)} strings, {len(every)} tokenizers, {sum(map(len, differences.values()))} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
