#!/usr/bin/env python3
"""cluster/evaluation/maniple_lm.py against the program: what the harness gets is what `generate` says, and what the harness's `hf` computes. The harness and transformers
are stood in for; tests/fuzz/against_lm_eval.py has them.

usage: maniple_lm_test.py PROGRAM DATA MPIRUN...     the program, tests/data, and what starts ranks (-n N follows)
"""

import importlib.util
import json
import shlex
import subprocess
import sys
import tempfile
import types
from pathlib import Path

PROGRAM, DATA, *MPIRUN = sys.argv[1:]
MODEL = f"{DATA}/models/shakespeare"
QUESTIONS = [json.loads(line) for line in Path(f"{DATA}/evaluation/questions.jsonl").read_text(encoding="utf-8").splitlines()]
REFERENCE = json.loads(Path(f"{DATA}/evaluation/reference.json").read_text(encoding="utf-8"))
SCRIPT = Path(__file__).parents[2] / "cluster/evaluation/maniple_lm.py"
registered = {}

# A program that scores a line by the places of its ids, and ends with the last line first.
SCORER = """
import json, pathlib, sys
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
run = pathlib.Path(options["--run-dir"])
run.mkdir()
lines = map(json.loads, open(options["--in"]))
def score(tokens, continuation):
    return {"logprob": -sum(place * token for place, token in enumerate(tokens + [0] + continuation)), "greedy": continuation[-1] % 2 == 0}
results = [{"id": line["id"], "tokens": [], "continuation": score(line["tokens"], line["continuation"])} for line in lines]
(run / "results.jsonl").write_text("".join(json.dumps(result) + "\\n" for result in reversed(results)))
"""


def score(tokens, continuation):
    return -sum(place * token for place, token in enumerate(tokens + [0] + continuation)), continuation[-1] % 2 == 0


def maniple(*arguments, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([PROGRAM, *arguments, "--model", MODEL, "--in", "-"], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Tokenizer:
    name_or_path, eos_token_id, bos_token_id, bos_token = MODEL, 2047, None, None
    known = {}

    @staticmethod
    def from_pretrained(path):
        return Tokenizer()

    def encode(self, text, add_special_tokens):  # it has none to add
        if text not in self.known:
            self.learn([text])
        return self.known[text]

    def learn(self, texts):
        lines = maniple("tokenize", "--special", lines=[{"text": text} for text in texts])  # one launch
        self.known.update(zip(texts, (line["tokens"] for line in lines)))


class TemplateLM:
    def __init__(self):
        self.cached = {}
        self.cache_hook = types.SimpleNamespace(add_partial=lambda kind, asked, answer: self.cached.update({(kind, str(asked)): answer}))

    def loglikelihood(self, requests):
        return self._loglikelihood_tokens([(request.args, *self.ids_of(*request.args)) for request in requests], disable_tqdm=False)

    # White space at the end of a context belongs to what follows it.
    def ids_of(self, context, continuation):
        if not context:
            return [self.prefix_token_id], self.tok_encode(continuation, add_special_tokens=False)
        known = self.tok_encode(context.rstrip())
        return known, self.tok_encode(context + continuation)[len(known):]


# What a pass sees, and what it predicts: the last ids of these follow the last ids of those.
def rolling_windows(tokens, prefix, length, context):
    assert context == 1
    known = [prefix, *tokens]
    for start in range(0, len(tokens), length):
        end = min(start + length, len(tokens))
        yield known[max(0, end - length):end], tokens[start:end]


def disjoint(window):
    seen, predicted = window
    return seen[:len(seen) - len(predicted) + 1], predicted


def stand_in(name, **content):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(content)


def load_script():
    for package in ("lm_eval", "lm_eval.api"):
        stand_in(package)
    stand_in("lm_eval.__main__", cli_evaluate=None)
    stand_in("lm_eval.api.model", TemplateLM=TemplateLM)
    stand_in("lm_eval.utils", get_rolling_token_windows=rolling_windows, make_disjoint_window=disjoint)
    stand_in("lm_eval.api.registry", register_model=lambda name: lambda model: registered.setdefault(name, model))
    stand_in("transformers", AutoTokenizer=Tokenizer)
    spec = importlib.util.spec_from_file_location("maniple_lm", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def asked(context, **arguments):
    return types.SimpleNamespace(args=(context, arguments))


def asked_to_score(*texts):
    return types.SimpleNamespace(args=texts)


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
    assert model.scoring_of(1, list(range(30)), [7, 8]) == {"id": 1, "tokens": list(range(11, 30)), "continuation": [7, 8]}
    assert model.scoring_of(2, [], [7] * 20) == {"id": 2, "tokens": [2047], "continuation": [7] * 20}
    raises(ValueError, "21 tokens to score", lambda: model.scoring_of(0, [1], [7] * 21))
    raises(ValueError, "0 tokens to score", lambda: model.scoring_of(0, [1], []))
    thinker = registered["maniple"](pretrained=MODEL, reasoning="auto")
    assert "stop" not in thinker.request_of(0, "a", {"until": ["x"]})


def scorer_in(folder, **options):
    program = Path(folder) / "scorer.py"
    program.write_text(SCORER, encoding="utf-8")
    return registered["maniple"](pretrained=MODEL, launcher=shlex.quote(sys.executable), program=str(program), run_dir=f"{folder}/runs", **options)


def scores_come_in_the_order_of_the_requests(folder):
    model = scorer_in(folder, max_length=8)
    pairs = [([5, 6], [7]), ([5, 6], [7, 8]), (list(range(1, 20)), [3, 4])]
    scores = model._loglikelihood_tokens([(("text", str(number)), *pair) for number, pair in enumerate(pairs)])
    assert scores == [score([5, 6], [7]), score([5, 6], [7, 8]), score(list(range(13, 20)), [3, 4])], scores
    assert model.cached == {("loglikelihood", str(("text", str(number)))): given for number, given in enumerate(scores)}
    assert len(list(Path(f"{folder}/runs").glob("*.jsonl"))) == 1


def a_text_is_scored_in_windows(folder):
    model = scorer_in(folder, max_length=8)
    model.tok_encode = lambda text: [ord(letter) for letter in text]
    letters = [ord(letter) for letter in "abcdefghijklmnopqrs"]
    totals = model.loglikelihood_rolling([asked_to_score(text) for text in ("abcdefghijklmnopqrs", "", "abcdefgh")])
    first = score([2047], letters[:8])[0]
    assert totals == [first + score(letters[7:8], letters[8:16])[0] + score(letters[10:16], letters[16:])[0], 0, first], totals
    assert list(model.cached.values()) == totals and ("loglikelihood_rolling", "('abcdefgh',)") in model.cached
    assert model.loglikelihood_rolling([asked_to_score("")]) == [0]
    assert len(list(Path(f"{folder}/runs").glob("*.jsonl"))) == 1


def close(ours, theirs):
    return abs(ours - theirs) <= 1e-4 + 1e-5 * abs(theirs)


def best(scores):
    return max(range(len(scores)), key=scores.__getitem__)


# Scores of all questions' choices, one after the other, beside the stored ones.
def compare(scores):
    expected = [(line["logprob"], line["greedy"]) for line in REFERENCE["questions"]]
    for ours, theirs in zip(scores, expected, strict=True):
        assert close(ours[0], theirs[0]) and ours[1] == theirs[1], (ours, theirs)
    for first in range(0, len(expected), 4):
        assert best(scores[first:first + 4]) == best(expected[first:first + 4]), first


def choices_are_those_of_hf(folder):
    asked = [asked_to_score(question["context"], choice) for question in QUESTIONS for choice in question["choices"]]
    Tokenizer().learn([text for context, choice in (request.args for request in asked) for text in (context.rstrip(), context + choice)])
    lines = [(line["tokens"], line["continuation"]) for line in REFERENCE["questions"]]
    for ranks in (1, 2):
        model = registered["maniple"](pretrained=MODEL, program=PROGRAM, launcher=shlex.join([*MPIRUN, "-n", str(ranks)]), tp=ranks, threads=1, dtype="fp32",
                                      run_dir=f"{folder}/{ranks}")
        assert [model.ids_of(*request.args) for request in asked] == lines
        compare(model.loglikelihood(asked))


def texts_are_those_of_hf(folder):
    length = REFERENCE["rolling_length"]
    model = registered["maniple"](pretrained=MODEL, program=PROGRAM, run_dir=folder, threads=1, dtype="fp32", max_length=length, max_model_len=length)
    totals = model.loglikelihood_rolling([asked_to_score(line["text"]) for line in REFERENCE["rolling"]])
    assert all(close(ours, line["logprob"]) for ours, line in zip(totals, REFERENCE["rolling"], strict=True)), totals


def a_failed_request_ends_it(folder):
    model = registered["maniple"](pretrained=MODEL, program=PROGRAM, run_dir=folder)
    raises(RuntimeError, "temperature", lambda: model.generate_until([asked("a", temperature=9)]))


load_script()
for case in (answers_are_those_of_generate, requests_are_lines, scores_come_in_the_order_of_the_requests, a_text_is_scored_in_windows, choices_are_those_of_hf,
             texts_are_those_of_hf, a_failed_request_ends_it):
    with tempfile.TemporaryDirectory() as scratch:
        case(scratch)
        print(f"ok: {case.__name__}")
