#!/usr/bin/env python3
"""harmony-style: a small tokenizer.json in the form of gpt-oss's o200k_harmony, and what Hugging Face tokenizers make of random texts of many scripts.

usage: make_harmony_style.py DIRECTORY     writes tokenizer.json and cases.json there

Needs Python with tokenizers (0.23) and tiktoken, which make_kimi_style.py imports."""

import json
import random
import sys
from pathlib import Path

from make_kimi_style import ENDING, random_text
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERN = "|".join([rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDING}", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDING}",
                    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
SPECIALS = [f"<|{name}|>" for name in ("startoftext", "endoftext", "reserved_200000", "reserved_200001", "return", "constrain", "reserved_200004", "channel", "start",
                                       "end", "message", "reserved_200009", "reserved_200010", "reserved_200011", "call", *(f"reserved_{i}" for i in range(200013, 200018)), "endofprompt")]
HEADERS = ["assistant", "analysis", "commentary", "final", " to=functions.get_weather ", " json", "assistant to=functions.clock", "user", "system", "developer"]


def tokenizer(texts):
    result = Tokenizer(models.BPE())
    result.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    result.decoder = decoders.ByteLevel()
    result.post_processor = processors.ByteLevel(trim_offsets=False)
    result.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    result.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    return result


def decodings(of, ids):
    return {"decoded": of.decode(ids, skip_special_tokens=False), "decoded_skip_special": of.decode(ids, skip_special_tokens=True)}


def encoded(of, text):
    ids = of.encode(text, add_special_tokens=False).ids
    return {"text": text, "ids": ids, "ids_with_special": of.encode(text, add_special_tokens=True).ids, **decodings(of, ids)}


def main():
    rng, folder = random.Random(41), Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    of = tokenizer([random_text(rng, SPECIALS) for _ in range(3000)] + HEADERS * 50)
    of.save(str(folder / "tokenizer.json"), pretty=False)
    texts = ["", " ", "http://x.org//a/\n\n/b", "//\r\n//", "McDonald's iPhoneX USA's ǅungla'S", *(random_text(rng, SPECIALS) for _ in range(150)),
             "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{}<|call|>"]
    streams = [[rng.randrange(of.get_vocab_size()) for _ in range(rng.randint(1, 12))] for _ in range(60)]
    cases = {"encode": [encoded(of, text) for text in texts], "decode": [{"ids": ids, **decodings(of, ids)} for ids in streams]}
    (folder / "cases.json").write_text(json.dumps(cases, indent=0) + "\n")


main()
