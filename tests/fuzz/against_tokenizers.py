#!/usr/bin/env python3
"""Random texts and token ids through each tokenizer.json, its added tokens changed at random, beside Hugging Face's tokenizers: the same, or it says where.

usage: against_tokenizers.py [--program PATH] [--texts N] [--rounds N] [--seed N] [TOKENIZER.json...]     (the tests' own where none is named)
Needs Python with tokenizers."""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from tokenizers import Tokenizer

WORDS = ["the", "Once", "ROMEO:", "don't", "I'M", "we'LL", "’s", "'ſ", "Straße", "ǅ", "ﬁ", "Å", "e\u0301", "naïve", "...", "«»", "://", "__", "\\n", "。"]
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u200b", "\x0b", "\x85", "\u1680", "\u180e"]
# Latin, combining marks, Greek to Hebrew, Arabic, Indic, Thai and Tibetan, Jamo, CJK, kana, Hangul, compatibility, emoji, flags, digits of many scripts, controls
RANGES = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x5ff), (0x600, 0x6ff), (0x900, 0xdff), (0xe00, 0xfff), (0x1100, 0x11ff), (0x4e00, 0x9fff),
          (0x3040, 0x30ff), (0xac00, 0xd7a3), (0xf900, 0xfaff), (0x1f300, 0x1faff), (0x1f1e6, 0x1f1ff), (0x660, 0x669), (0x966, 0x96f), (0xff10, 0xff19),
          (0, 0x1f), (0xe000, 0x10ffff)]
ADDED = ["foo", "Å bar", "<tool>", " x", "12 ", "tokén"]


def random_text(rng, added):
    def piece():
        kind = rng.randrange(7)
        if kind == 0:
            return rng.choice(WORDS)
        if kind == 1:
            return rng.choice(SPACES) * rng.randint(1, 4)
        if kind == 2:
            return str(rng.randrange(10 ** rng.randint(1, 12)))
        if kind == 3:
            return rng.choice(added or WORDS)
        if kind == 4:
            return rng.choice("aZéßж中0") * rng.randint(1, 40)
        first, last = rng.choice(RANGES)
        letters = (chr(rng.choice([rng.randint(first, last), rng.randint(first, last), 0x200d, 0x301])) for _ in range(rng.randint(1, 8)))
        return "".join(letter for letter in letters if unicodedata.category(letter) != "Cn")  # what is not assigned yet depends on libraries' ages
    return "".join(piece() + " " * (rng.random() < 0.4) for _ in range(rng.randint(1, 14)))


def change_added_tokens(document, rng):
    tokens = document["added_tokens"]
    for token in tokens:
        for field in ("lstrip", "rstrip", "single_word"):
            token[field] ^= rng.random() < 0.2
    free = 1 + max([token["id"] for token in tokens] + list(document["model"]["vocab"].values()))
    chance = lambda: rng.random() < 0.3
    for content in rng.sample([word for word in ADDED if word not in document["model"]["vocab"]], k=3):
        tokens.append({"id": free, "content": content, "single_word": chance(), "lstrip": chance(), "rstrip": chance(), "normalized": chance(), "special": chance()})
        free += 1


def ask(program, folder, lines, *options):
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = subprocess.run([program, "tokenize", "--model", folder, "--in", folder / "in.jsonl", *options], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def differences(program, folder, document, rng, count):
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = [random_text(rng, [token["content"] for token in document["added_tokens"]]) for _ in range(count)]
    ids = [rng.choices(range(theirs.get_vocab_size()), k=rng.randrange(20)) for _ in range(count)]
    for special in ([], ["--special"]):
        for text, ours in zip(texts, ask(program, folder, texts, *special), strict=True):
            right = theirs.encode(text, add_special_tokens=bool(special)).ids
            if ours["tokens"] != right:
                yield f"{text!r} is {right}, not {ours['tokens']}"
        for tokens, ours in zip(ids, ask(program, folder, ids, "--decode", *special), strict=True):
            right = theirs.decode(tokens, skip_special_tokens=not special)
            if ours["text"] != right:
                yield f"{tokens} is {right!r}, not {ours['text']!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/maniple")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("tokenizers", nargs="*", type=Path)
    arguments = parser.parse_args()
    files = arguments.tokenizers or sorted(Path(__file__).parents[1].glob("data/**/tokenizer.json"))
    found = 0
    for number in range(arguments.rounds):
        for file in files:
            rng = random.Random(arguments.seed + number)
            document = json.loads(file.read_text())
            change_added_tokens(document, rng)
            with tempfile.TemporaryDirectory() as name:
                (Path(name) / "tokenizer.json").write_text(json.dumps(document))
                for difference in differences(arguments.program, Path(name), document, rng, arguments.texts):
                    found += 1
                    print(f"{file}, --seed {arguments.seed + number}: {difference}", flush=True)
    print(f"{found} differences in {4 * arguments.texts * arguments.rounds * len(files)} texts and sequences of ids")
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
