#!/usr/bin/env python3
"""cluster/evaluation/maniple_lm.py against the program: what the harness gets is what `generate` says. The harness and transformers are stood in for.

usage: maniple_lm_test.py PROGRAM DATA     the program, and tests/data
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
import types
from pathlib import Path

PROGRAM, DATA = sys.argv[1:3]
MODEL = f"{DATA}/models/shakespeare"
SCRIPT = Path(__file__).parents[2] / "cluster/evaluation/maniple_lm.py"
registered = {}


def maniple(*arguments, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([PROGRAM, *arguments, "--model", MODEL, "--in", "-"], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Tokenizer:
    name_or_path, eos_token_id, bos_token_id, bos_token = MODEL, 2047, None, None

    @staticmethod
    def from_pretrained(path):
        return Tokenizer()

    def encode(self, text, add_special_tokens):
        return maniple("tokenize", *["--special"] * add_special_tokens, lines=[{"text": text}])[0]["tokens"]


class TemplateLM:
    def __init__(self):
        self.cache_hook = types.SimpleNamespace(add_partial=lambda *_: None)


def stand_in(name, **content):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(content)


def load_script():
    for package in ("lm_eval", "lm_eval.api"):
        stand_in(package)
    stand_in("lm_eval.__main__", cli_evaluate=None)
    stand_in("lm_eval.api.model", TemplateLM=TemplateLM)
    stand_in("lm_eval.api.registry", register_model=lambda name: lambda model: registered.setdefault(name, model))
    stand_in("transformers", AutoTokenizer=Tokenizer)
    spec = importlib.util.spec_from_file_location("maniple_lm", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def asked(context, **arguments):
    return types.SimpleNamespace(args=(context, arguments))


def raises(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"no {kind.__name__}: {words}")


def answers_are_those_of_generate(folder):
    model = registered["maniple"](pretrained=MODEL, program=PROGRAM, run_dir=folder, threads=1)
    contexts = ["ROMEO:\nWhat", "JULIET:", "First Citizen:\nBefore we "]
    requests = [asked(context, until=["\n\n", "the", ""], max_gen_toks=30, do_sample=False, temperature=0.7) for context in contexts]
    lines = [{"prompt": context, "stop": ["\n\n", "the"], "max_tokens": 30} for context in contexts]
    expected = [result["text"] for result in maniple("generate", "--temperature", "0", lines=lines)]
    assert model.generate_until(requests) == expected
    assert model.generate_until(requests) == expected
    assert len(list(Path(folder).glob("*/jobs/*"))) == 1, "the same requests were launched twice"
    assert model.generate_until(requests[:1]) == expected[:1]


def requests_are_lines(folder):
    model = registered["maniple"](pretrained=MODEL, run_dir=folder, max_length=20, launcher="mpirun -n 2", tp=2, kv_memory="1G", quiet=True, eager=False)
    assert model.command == ["mpirun", "-n", "2", "maniple", "generate", "--model", MODEL, "--tp", "2", "--kv-memory", "1G", "--quiet"]
    tokens = model.tok_encode("ROMEO: one two three four five six seven eight nine ten")
    assert model.request_of(3, "ROMEO: one two three four five six seven eight nine ten", {"until": "x", "max_new_tokens": 12}) == {
        "id": 3, "tokens": tokens[-8:], "max_tokens": 12, "temperature": 0, "stop": ["x"]}
    assert model.request_of(0, "", {"max_gen_toks": 1, "temperature": 0.5, "top_p": 0.9}) == {
        "id": 0, "tokens": [2047], "max_tokens": 1, "temperature": 0.5, "top_p": 0.9}
    raises(ValueError, "num_beams", lambda: model.request_of(0, "a", {"num_beams": 4, "max_gen_toks": 1}))
    raises(ValueError, "no room", lambda: model.request_of(0, "a", {}))
    raises(NotImplementedError, "generate_until", lambda: model.loglikelihood([]))
    thinker = registered["maniple"](pretrained=MODEL, reasoning="auto")
    assert "stop" not in thinker.request_of(0, "a", {"until": ["x"]})


def a_failed_request_ends_it(folder):
    model = registered["maniple"](pretrained=MODEL, program=PROGRAM, run_dir=folder)
    raises(RuntimeError, "temperature", lambda: model.generate_until([asked("a", temperature=9)]))


load_script()
for case in (answers_are_those_of_generate, requests_are_lines, a_failed_request_ends_it):
    with tempfile.TemporaryDirectory() as scratch:
        case(scratch)
        print(f"ok: {case.__name__}")
