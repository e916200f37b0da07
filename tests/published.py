"""What published.sh runs: a downloaded model beside transformers, on the same texts and tokens."""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.append(str(Path(__file__).parent / "fuzz"))
from against_transformers import EXACT, TYPES, compare, root_mean_square, run  # noqa: E402

TEXTS = ["The maniple was the smallest unit of a legion that could move on its own.", "def main():\n    return {'a': [1, 2.5, -3e-7]}\n",
         "Grüße aus Köln – 東京は日本の首都です。 Привет, мир! 👩‍👩‍👧‍👦", "  leading,   inner\t\tand trailing space  \n\n\n", "1234567890 3.14159 0x7fff 2026-11-22",
         "I'll, we'VE, don't; \"quoted\" (round) [square] {curly} <|not a token|>", "a", "\n", "e\u0301 é ﬁ Ω 𝔘𝔫𝔦𝔠𝔬𝔡𝔢"]
CHATS = [[{"role": "user", "content": "Name three Roman legions."}],
         [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."},
          {"role": "user", "content": "  And now?\n"}]]


def tokenize(arguments, lines, *options):
    command = [arguments.program, "tokenize", "--model", arguments.model, *options]
    done = subprocess.run(command, input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def differing(what, inputs, ours, theirs):
    wrong = [(given, mine, other) for given, mine, other in zip(inputs, ours, theirs, strict=True) if mine != other]
    for given, mine, other in wrong:
        print(f"BAD {what} of {given!r}:\n    ours   {mine}\n    theirs {other}")
    print(f"{what}: {len(inputs) - len(wrong)} of {len(inputs)} the same")
    return len(wrong)


def log_probabilities_differ(arguments, tokenizer):
    exact, same_type = (AutoModelForCausalLM.from_pretrained(arguments.model, dtype=dtype).eval() for dtype in (torch.float32, TYPES[arguments.dtype]))
    requests = [{"id": str(i), "tokens": tokenizer(text)["input_ids"], "max_tokens": 16, "ignore_eos": True, "temperature": 0, "logprobs": 5}
                for i, text in enumerate(TEXTS)]
    failures, tokens = 0, set()
    for ranks, tp in dict.fromkeys([(1, 1), (arguments.ranks, arguments.tp)]):
        with tempfile.TemporaryDirectory() as folder:
            results = run(arguments, Path(folder), requests, tp, ranks, random.Random(1), arguments.model)
        ours, theirs, regret = compare(requests, results, exact, same_type)
        largest, ours, theirs = max(map(abs, ours)), root_mean_square(ours), root_mean_square(theirs)
        good = max(largest, regret) <= EXACT if arguments.dtype == "fp32" else ours <= 1.2 * theirs
        failures += not good
        tokens.add(json.dumps([results[request["id"]]["tokens"] for request in requests]))
        print("ok " if good else "BAD", f"{ranks} ranks, tp {tp}, {arguments.dtype}: largest difference {largest:.1e}, rms {ours:.1e}, theirs {theirs:.1e}", flush=True)
    keeps_bits = 8 % arguments.tp == 0  # other tensor sizes have bits of their own
    if len(tokens) > 1:
        print("BAD the tokens depend on the number of ranks" if keeps_bits else f"ok  some tokens of tp {arguments.tp} are others: its sums have bits of their own")
    return failures + (keeps_bits and len(tokens) > 1)


def main():
    parser = argparse.ArgumentParser(usage="tests/published.sh DIR [OPTION...]")
    parser.add_argument("model")
    parser.add_argument("--program", default="build/release/maniple")
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none")
    parser.add_argument("--dtype", choices=TYPES, default="bf16")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tp", type=int, default=2)
    arguments, arguments.options = parser.parse_known_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    failures = differing("token ids", TEXTS, [line["tokens"] for line in tokenize(arguments, [{"text": text} for text in TEXTS], "--special")],
                         [tokenizer(text)["input_ids"] for text in TEXTS])
    if tokenizer.chat_template:
        failures += differing("chat prompts", CHATS, [line["prompt"] for line in tokenize(arguments, [{"messages": chat} for chat in CHATS], "--chat")],
                              [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in CHATS])
    failures += log_probabilities_differ(arguments, tokenizer)
    sys.exit(failures > 0)


main()
