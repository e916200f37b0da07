#!/usr/bin/env python3
"""Special tokens that tokenizer.json lacks, or that other files describe otherwise: the ids and texts of transformers.

usage: special_tokens.py FILE     writes the cases with what transformers does to FILE (tests/data/special_tokens/cases.json)
       special_tokens.py --check FILE     compares; exits with 1 if this version of transformers does something else

Needs Python with transformers (5.2; the cases are the same with 4.57, but for special_tokens_map.json)."""

import itertools
import json
import sys
import tempfile
from pathlib import Path

from transformers import PreTrainedTokenizerFast

MODEL = {"type": "BPE", "unk_token": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
         "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, " ": 4, "_": 5, "ab": 6, "bc": 7, "cd": 8, "abc": 9, "<e>": 10},
         "merges": [["b", "c"], ["a", "b"], ["ab", "c"], ["c", "d"]]}
TEXTS = ["abc<x>cd", "a <x> b", "<e>ab<e>", "<x><y><z>", "ab<y> cd", " <y>", "a<x>b <p>", "<n>ab"]


def token(content, id=None, **flags):
    made = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} | flags
    return made if id is None else {"id": id} | made


def unmarked(content, **flags):  # special_tokens_map.json does not say "special"
    return {name: value for name, value in token(content, **flags).items() if name != "special"}


def config(**fields):
    return {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"} | fields}


def decoder(*tokens):
    return {str(id): token(content, **flags) for content, id, flags in tokens}


CASES = {
    "in added_tokens_decoder alone": ([], config(added_tokens_decoder=decoder(("<x>", 11, {}), ("<y>", 12, {})), eos_token="<x>")),
    "flags of tokenizer_config.json override": ([token("<x>", 11), token("<y>", 12)],
                                                config(added_tokens_decoder=decoder(("<x>", 11, {"lstrip": True, "rstrip": True}),
                                                                                    ("<y>", 12, {"rstrip": True})))),
    "normalized and single_word": ([], config(added_tokens_decoder=decoder(("<x>", 11, {"normalized": True, "special": False}),
                                                                           ("<y>", 12, {"single_word": True})))),
    "eos_token alone": ([], config(eos_token="<x>")),
    "eos_token of the vocabulary": ([], config(eos_token="<e>")),
    "named tokens in the order of their names": ([], config(pad_token="<p>", eos_token="<x>", bos_token="<y>")),
    "an object as eos_token": ([], config(eos_token={"__type": "AddedToken"} | token("<x>", lstrip=True))),
    "additional_special_tokens": ([], config(additional_special_tokens=["<x>", "<y>", "<x>"])),
    "extra_special_tokens": ([], config(extra_special_tokens=["<y>", "<x>"])),
    "extra_special_tokens with names": ([], config(extra_special_tokens={"image_token": "<x>", "video_token": "<y>"})),
    "a name of the model's own": ([], config(image_token="<z>", eos_token="<x>")),
    "added_tokens.json": ([], config() | {"added_tokens.json": {"<x>": 11, "<y>": 12}}),
    "added_tokens.json and eos_token": ([], config(eos_token="<y>") | {"added_tokens.json": {"<x>": 11, "<y>": 12}}),
    "added_tokens.json beside tokenizer.json": ([token("<x>", 11)], config() | {"added_tokens.json": {"<z>": 11, "<y>": 12}}),
    "special_tokens_map.json": ([], config() | {"special_tokens_map.json": {"eos_token": "<x>", "pad_token": unmarked("<p>", rstrip=True)}}),
    "special_tokens_map.json over tokenizer_config.json": ([], config(eos_token="<y>") | {"special_tokens_map.json": {"eos_token": "<x>"}}),
    "special_tokens_map.json beside a decoder": ([], config(added_tokens_decoder=decoder(("<x>", 11, {}))) |
                                                 {"special_tokens_map.json": {"eos_token": "<y>"}}),
    "special_tokens_map.json with a list": ([], config() | {"special_tokens_map.json": {"additional_special_tokens": ["<x>", "<y>"]}}),
    "no tokenizer_config.json": ([], {"special_tokens_map.json": {"eos_token": "<x>"}, "added_tokens.json": {"<x>": 11}}),
    "a gap before the id": ([], config(added_tokens_decoder=decoder(("<x>", 20, {})))),
    "not special, but named": ([], config(added_tokens_decoder=decoder(("<x>", 11, {"special": False})), eos_token="<x>")),
    "after tokens of the file": ([token("<x>", 11), token("<n>", 12, special=False, normalized=True)], config(pad_token="<p>", eos_token="<y>")),
}


def observed(added, files):
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": None,
                     "post_processor": None, "decoder": {"type": "Fuse"}, "model": MODEL}
        for name, content in ({"tokenizer.json": tokenizer} | files).items():
            Path(folder, name).write_text(json.dumps(content))
        try:
            made = PreTrainedTokenizerFast.from_pretrained(folder)
        except Exception as error:  # of whatever kind: this version refuses it
            return {"refused": type(error).__name__}
        ids = [made.encode(text, add_special_tokens=False) for text in TEXTS]
        return {"ids": ids, "skipped": [made.decode(each, skip_special_tokens=True) for each in ids],
                "named": {name: text for name, text in made.special_tokens_map.items() if isinstance(text, str)}}


def main():
    path = Path(sys.argv[-1])
    cases = [{"name": name, "added_tokens": added, "files": files} | observed(added, files) for name, (added, files) in CASES.items()]
    text = json.dumps({"model": MODEL, "texts": TEXTS, "cases": cases}, indent=1) + "\n"
    if "--check" not in sys.argv:
        path.write_text(text)
        return 0
    stored = json.loads(path.read_text())["cases"]
    different = [new["name"] for old, new in itertools.zip_longest(stored, cases) if old != new]
    print("\n".join(different) or f"{len(cases)} cases: the same")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
