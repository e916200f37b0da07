#!/usr/bin/env python3
"""lm-evaluation-harness with maniple: adds the model `maniple`, then does what the harness's own command does.

usage: cluster/evaluation/maniple_lm.py run --model maniple --model_args pretrained=DIR,launcher='srun -n 8',tp=4 --tasks TASK... [...]

model_args: pretrained    the model's directory
            launcher      what starts the ranks, such as srun -n 8 or mpirun -n 4 [default: one process]
            program       [default: maniple]
            run_dir       inputs and results are kept there: the same command again takes up what is left [default: evaluation]
            tokenizer     a directory of its own, of a packed model [default: pretrained]
            max_length    tokens of a context and its answer [default: config.json's]
            NAME=VALUE    any other option of `maniple generate`, such as tp, dtype, quiet=True or reasoning (then stop strings end the answer, not the thought)

It needs the Python packages lm_eval and transformers; no torch. Tasks that generate (generate_until), that compare answers (loglikelihood, multiple_choice) and that
score whole texts (loglikelihood_rolling) run, also with --apply_chat_template. The ids are those of the harness's `hf`, and in the same dtype so are the numbers.
"""

import hashlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

from lm_eval.__main__ import cli_evaluate
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from transformers import AutoTokenizer

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the harness's names, the first given one counts
PASSED_ON = ("top_p", "top_k", "min_p", "seed")
DEFAULT_LENGTH = 256


def context_of(model):
    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    return config.get("text_config", config).get("max_position_embeddings", 2048)


def before_first(stops, text):
    for stop in stops:
        text = text.split(stop)[0]
    return text


@register_model("maniple")
class Maniple(TemplateLM):
    def __init__(self, pretrained, launcher="", program="maniple", run_dir="evaluation", tokenizer=None, max_length=None, batch_size=None, max_batch_size=None,
                 device=None, **options):
        super().__init__()
        self.model = pretrained
        self.command = [*shlex.split(launcher), program, "generate", "--model", str(pretrained)]
        for name, value in options.items():
            self.command += [] if value is False else [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        self.splits = str(options.get("reasoning", "off")) != "off"
        self.run_dir = Path(run_dir)
        self.tokenizer = AutoTokenizer.from_pretrained(tokenizer or pretrained)
        self.max_length = int(max_length or context_of(tokenizer or pretrained))

    # Texts and ids, as the harness's `hf` has them

    @property
    def eot_token_id(self):
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self):
        return self.eot_token_id if self.tokenizer.bos_token_id is None else self.tokenizer.bos_token_id

    @property
    def tokenizer_name(self):
        return self.tokenizer.name_or_path.replace("/", "__")

    def tok_encode(self, string, add_special_tokens=None, **_):
        if add_special_tokens is None:
            add_special_tokens = not (self.tokenizer.bos_token and string.startswith(self.tokenizer.bos_token))
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return self.tokenizer.apply_chat_template(chat_history, tokenize=False, add_generation_prompt=add_generation_prompt,
                                                  continue_final_message=not add_generation_prompt)

    # Requests

    def generate_until(self, requests, disable_tqdm=False):
        asked = [request.args for request in requests]
        results = self.results_of([self.request_of(number, *arguments) for number, arguments in enumerate(asked)])
        texts = [before_first(self.stops_of(arguments), result["text"]) for (_, arguments), result in zip(asked, results)]
        for arguments, text in zip(asked, texts):
            self.cache_hook.add_partial("generate_until", arguments, text)
        return texts

    # The harness's loglikelihood makes the ids.
    def _loglikelihood_tokens(self, requests, disable_tqdm=False):
        results = self.results_of([self.scoring_of(number, context, continuation) for number, (_, context, continuation) in enumerate(requests)])
        scores = [(result["continuation"]["logprob"], result["continuation"]["greedy"]) for result in results]
        for (texts, _, _), score in zip(requests, scores):
            if texts is not None:  # a window of loglikelihood_rolling
                self.cache_hook.add_partial("loglikelihood", texts, score)
        return scores

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        windows = [self.windows_of(*request.args) for request in requests]
        scores = iter(self._loglikelihood_tokens([(None, *window) for of_text in windows for window in of_text]))
        totals = [sum(next(scores)[0] for _ in of_text) for of_text in windows]
        for request, total in zip(requests, totals):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def windows_of(self, text):
        return [make_disjoint_window(window) for window in get_rolling_token_windows(self.tok_encode(text), self.prefix_token_id, self.max_length, 1)]

    # The last token is never an input, so one more than the model takes may stand in a line.
    def scoring_of(self, number, context, continuation):
        if not 0 < len(continuation) <= self.max_length:
            raise ValueError(f"{len(continuation)} tokens to score: the model takes from 1 to {self.max_length}")
        room = self.max_length + 1 - len(continuation)
        return {"id": number, "tokens": (context or [self.prefix_token_id])[-room:], "continuation": continuation}

    def stops_of(self, arguments):
        until = arguments.get("until") or []
        return [stop for stop in ([until] if isinstance(until, str) else until) if stop]

    # A line of the input. The end of a context that is too long counts.
    def request_of(self, number, context, arguments):
        length = next((int(arguments[name]) for name in LENGTHS if arguments.get(name) is not None), DEFAULT_LENGTH)
        room = self.max_length - length
        if room <= 0:
            raise ValueError(f"{length} tokens of an answer leave no room for its context: the model has {self.max_length}")
        unknown = set(arguments) - {"until", "do_sample", "temperature", *LENGTHS, *PASSED_ON}
        if unknown:
            raise ValueError(f"maniple has no {', '.join(sorted(unknown))}: leave it out of the task's generation_kwargs or --gen_kwargs")
        request = {"id": number, "tokens": (self.tok_encode(context) or [self.prefix_token_id])[-room:], "max_tokens": length}
        request["temperature"] = 0 if arguments.get("do_sample") is False else float(arguments.get("temperature", 0))
        request |= {name: arguments[name] for name in PASSED_ON if arguments.get(name) is not None}
        stops = self.stops_of(arguments)
        return request | {"stop": stops} if stops and not self.splits else request

    # One launch. Its folder is named by model and lines: the same requests find what an earlier command has done.
    def results_of(self, requests):
        if not requests:
            return []
        lines = "".join(json.dumps(request) + "\n" for request in requests)
        run = self.run_dir / hashlib.sha256(f"{Path(self.model).resolve()}\n{lines}".encode()).hexdigest()[:16]
        run.parent.mkdir(parents=True, exist_ok=True)
        source = run.with_suffix(".jsonl")
        source.write_text(lines, encoding="utf-8")
        code = subprocess.run([*self.command, "--in", str(source), "--run-dir", str(run)], stdout=sys.stderr).returncode
        failed = run / "errors.jsonl"
        if failed.exists() and failed.stat().st_size:
            raise RuntimeError(f"{failed}: {failed.read_text(encoding='utf-8').splitlines()[0]}")
        if code:
            raise RuntimeError(f"maniple ended with {code}" + ("; the same command again does the rest" if code == 75 else ""))
        results = map(json.loads, (run / "results.jsonl").read_text(encoding="utf-8").splitlines())
        return sorted(results, key=lambda result: result["id"])


if __name__ == "__main__":
    cli_evaluate()
