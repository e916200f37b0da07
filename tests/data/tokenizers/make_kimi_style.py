#!/usr/bin/env python3
"""kimi-style: a small tiktoken.model with Kimi's pattern, and what the tiktoken package makes of random texts of many scripts.

usage: make_kimi_style.py DIRECTORY     writes tiktoken.model, tokenizer_config.json and cases.json there

Needs Python with tiktoken (0.14). Limits of a text as in Kimi's Python file: parts of 400,000 characters, runs of 25,000."""

import base64
import json
import random
import sys
import unicodedata
from pathlib import Path

import tiktoken

HERE = Path(__file__).parent
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDING}", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDING}",
                    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
NAMES = {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 3: ("<|im_user|>", True), 4: ("<|im_assistant|>", True), 11: ("<think>", False),
         12: ("</think>", False), 255: ("[PAD]", True)}
SCRIPTS = [(0x20, 0x7f), (0xa0, 0x24f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f), (0x10a0, 0x10ff),
           (0x1100, 0x11ff), (0x2000, 0x206f), (0x2190, 0x21ff), (0x3000, 0x303f), (0x3040, 0x30ff), (0x3400, 0x3500), (0x4e00, 0x4f00), (0xac00, 0xad00),
           (0xff00, 0xffef), (0x1d400, 0x1d4ff), (0x1f300, 0x1f64f), (0x20000, 0x20040), (0x1e900, 0x1e95f)]
BLANKS = " \t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u2003\u2028\u3000"


def characters(rng, count):
    low, high = rng.choice(SCRIPTS)
    text = "".join(chr(rng.randrange(low, high)) for _ in range(count))
    return "".join(c for c in text if unicodedata.category(c) not in ("Cn", "Cs", "Co"))


def random_text(rng, specials):
    text = ""
    for _ in range(rng.randrange(1, 9)):
        kind = rng.random()
        if kind < 0.5:
            text += characters(rng, rng.randrange(1, 12))
        elif kind < 0.65:
            text += "".join(rng.choice(BLANKS) for _ in range(rng.randrange(1, 5)))
        elif kind < 0.8:
            text += rng.choice([" the people's", "WE'LL", "don't", "it'\u017f", "HTTPServer", " 12345", "\u6f22\u5b57kana\u304b\u306a", "e\u0301\u4e00", "\n\n  x", "...\r\n", "caf\u00e9"])
        elif kind < 0.9:
            text += rng.choice(specials + ["<|im_end", "[BOS"])
        else:
            text += rng.choice("aZ0 -\u4e00") * rng.randrange(1, 40)
    return text


def vocabulary(rng, texts, size):
    """Frequent neighbours become tokens; some are put together at random, and ranks are in no order of length."""
    ranks = {bytes([b]): b for b in range(256)}
    words = [[bytes([b]) for b in text.encode()] for text in texts]
    while len(ranks) < size:
        pairs = {}
        for word in words:
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        ranks.setdefault(b"".join(best), len(ranks))
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i:i + 2] = [b"".join(best)]
                i += 1
        ranks.setdefault(b"".join(rng.choices(list(ranks), k=2))[:24], len(ranks))
    longer = [token for token in ranks if len(token) > 1]
    for _ in range(len(longer) // 4):
        a, b = rng.sample(longer, 2)
        ranks[a], ranks[b] = ranks[b], ranks[a]
    return ranks


def parts(text, longest=400_000, run=25_000):
    for begin in range(0, len(text), longest):
        part, start, length = text[begin:begin + longest], 0, 0
        for i, c in enumerate(part):
            length = length + 1 if i > 0 and c.isspace() == part[i - 1].isspace() else 1
            if length > run:
                yield part[start:i]
                start, length = i, 1
        yield part[start:]


def fingerprint(ids):
    value = 0
    for id in ids:
        value = (value * 1_000_003 + id + 1) % 2**64
    return value


def main():
    folder, rng = Path(sys.argv[1]), random.Random(39)
    known = [case["text"] for case in json.loads((HERE / "qwen-style" / "cases.json").read_text())["encode"]]
    known = [text for text in known if all(unicodedata.category(c) != "Cn" for c in text)]
    ranks = vocabulary(rng, [random_text(rng, [""]) for _ in range(150)] + known, 1200)
    specials = {i: NAMES.get(i, (f"<|reserved_token_{len(ranks) + i}|>", True)) for i in range(256)}
    encoding = tiktoken.Encoding("kimi-style", pat_str=PATTERN, mergeable_ranks=ranks,
                                 special_tokens={name: len(ranks) + i for i, (name, _) in specials.items()})
    encode = lambda text: [id for part in parts(text) for id in encoding.encode(part, allowed_special="all")]
    plain = lambda ids: [id for id in ids if id < len(ranks) or not specials[id - len(ranks)][1]]

    def decoded(ids):
        return {"ids": ids, "decoded": encoding.decode(ids), "decoded_skip_special": encoding.decode(plain(ids))}

    texts = known + [random_text(rng, [name for name, _ in NAMES.values()] + ["<|reserved_token_1300|>"]) for _ in range(120)]
    encoded = [{"text": text} | decoded(encode(text)) for text in dict.fromkeys(texts)]
    random_ids = [[rng.randrange(260 if rng.random() < 0.5 else encoding.n_vocab) for _ in range(rng.randrange(1, 16))] for _ in range(60)]
    long_texts = [[["a", 25_000]], [["a", 25_001]], [["a", 24_999], [" ", 25_002], ["\x1c", 25_000]], [["b", 30_000], ["[EOS]", 1], ["\u4e00", 60_000]],
                  [["ab cd ", 66_665], ["[BOS]ab", 3]], [["\u00e9 \u4e00", 133_333], ["xyz", 9_000]]]
    long = []
    for text in long_texts:
        ids = encode("".join(unit * count for unit, count in text))
        long.append({"parts": text, "count": len(ids), "fingerprint": str(fingerprint(ids))})
    (folder / "tiktoken.model").write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in sorted(ranks.items(), key=lambda x: x[1])))
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    decoder = {str(len(ranks) + i): {"content": name, "special": special} | flags for i, (name, special) in NAMES.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder, "bos_token": "[BOS]", "eos_token": "[EOS]", "pad_token": "[PAD]",
                                                              "tokenizer_class": "TikTokenTokenizer"}, indent=1) + "\n")
    cases = {"encode": [case | {"ids_with_special": case["ids"]} for case in encoded], "decode": [decoded(ids) for ids in random_ids], "long": long}
    (folder / "cases.json").write_text(json.dumps(cases, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
