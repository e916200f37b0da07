#!/usr/bin/env python3
"""Log-probabilities of questions.jsonl and of rolling.json's texts by the demo model, in double precision: what lm-evaluation-harness's `hf` computes in fp32.

usage: make_reference.py     writes reference.json beside it. Needs numpy and tokenizers.

The forward pass below is independent of maniple and of torch. It must first give the logits that transformers gave for golden.safetensors (fp32) within 1e-3.
"""

import json
from pathlib import Path

import numpy
from tokenizers import Tokenizer

HERE = Path(__file__).parent
MODEL = HERE.parent / "models/shakespeare"
CONFIG = json.loads((MODEL / "config.json").read_text())
HEADS, KV_HEADS, HEAD = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"], CONFIG["head_dim"]
PREFIX = 2047  # <|im_end|>: the tokenizer has no first token, so `hf` takes the last one
ROLLING_LENGTH = 16  # tokens that a pass sees
ROLLING = ["", "O", "ROMEO:\nBut, soft! what light through yonder window breaks?\nIt is the east, and Juliet is the sun.\nArise, fair sun, and kill the envious moon.",
           "KING LEAR:\nBlow, winds, and crack your cheeks! rage! blow!"]


def tensors_of(path):
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        raw = data[start + first:start + last]
        if entry["dtype"] == "BF16":  # the upper half of an fp32
            values = (numpy.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        else:
            values = numpy.frombuffer(raw, {"F32": "<f4", "I32": "<i4"}[entry["dtype"]])
        yield name, values.astype("f8" if values.dtype.kind == "f" else "i8").reshape(entry["shape"])


WEIGHTS = {name.removeprefix("model."): values for name, values in tensors_of(MODEL / "model.safetensors")}


def norm(x, weight):
    return x / numpy.sqrt(numpy.mean(x * x, -1, keepdims=True) + CONFIG["rms_norm_eps"]) * weight


def rotated(x):  # [heads, tokens, lanes]
    half = HEAD // 2
    angles = numpy.arange(x.shape[1])[:, None] * CONFIG["rope_parameters"]["rope_theta"] ** (-numpy.arange(half) / half)
    low, high = x[..., :half], x[..., half:]
    return numpy.concatenate([low * numpy.cos(angles) - high * numpy.sin(angles), high * numpy.cos(angles) + low * numpy.sin(angles)], -1)


def attention(x, weight):
    def heads(name, count):
        return (x @ weight(f"self_attn.{name}_proj").T).reshape(len(x), count, HEAD).transpose(1, 0, 2)

    q = rotated(norm(heads("q", HEADS), weight("self_attn.q_norm")))
    k = rotated(norm(heads("k", KV_HEADS), weight("self_attn.k_norm"))).repeat(HEADS // KV_HEADS, 0)
    v = heads("v", KV_HEADS).repeat(HEADS // KV_HEADS, 0)
    scores = q @ k.transpose(0, 2, 1) / numpy.sqrt(HEAD) + numpy.triu(numpy.full((len(x), len(x)), -numpy.inf), 1)
    shares = numpy.exp(scores - scores.max(-1, keepdims=True))
    mixed = shares / shares.sum(-1, keepdims=True) @ v
    return mixed.transpose(1, 0, 2).reshape(len(x), -1) @ weight("self_attn.o_proj").T


def feed_forward(x, weight):
    gate = x @ weight("mlp.gate_proj").T
    return (gate / (1 + numpy.exp(-gate)) * (x @ weight("mlp.up_proj").T)) @ weight("mlp.down_proj").T


def logits_of(tokens):
    x = WEIGHTS["embed_tokens.weight"][tokens]
    for layer in range(CONFIG["num_hidden_layers"]):
        def weight(name):
            return WEIGHTS[f"layers.{layer}.{name}.weight"]

        x = x + attention(norm(x, weight("input_layernorm")), weight)
        x = x + feed_forward(norm(x, weight("post_attention_layernorm")), weight)
    return norm(x, WEIGHTS["norm.weight"]) @ WEIGHTS["embed_tokens.weight"].T


def score(context, continuation):
    rows = logits_of(context + continuation[:-1])[-len(continuation):]
    logprobs = rows - rows.max(-1, keepdims=True)
    logprobs -= numpy.log(numpy.exp(logprobs).sum(-1, keepdims=True))
    return float(logprobs[range(len(continuation)), continuation].sum()), bool((rows.argmax(-1) == continuation).all())


def agrees_with_transformers():
    golden = dict(tensors_of(MODEL / "golden.safetensors"))
    for number in range(sum(name.startswith("prompt_") for name in golden)):
        prompt, tokens, logits = (golden[f"{name}_{number}"] for name in ("prompt", "tokens", "logits"))
        ours = logits_of([*prompt, *tokens[:len(logits) - 1]])[-len(logits):]
        assert abs(ours - logits).max() < 1e-3, abs(ours - logits).max()


# Every token but the very first is predicted once, in passes of at most ROLLING_LENGTH tokens; the last pass sees as many as the others.
def rolling(tokens):
    total, known = 0.0, [PREFIX] + tokens
    for start in range(0, len(tokens), ROLLING_LENGTH):
        end = min(start + ROLLING_LENGTH, len(tokens))
        total += score(known[max(0, end - ROLLING_LENGTH):start + 1], tokens[start:end])[0]
    return total


def main():
    agrees_with_transformers()
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    scores, gap = [], numpy.inf
    for question in map(json.loads, (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines()):
        context = question["context"].rstrip()
        encoded = tokenizer.encode(context).ids
        lines = []
        for choice in question["choices"]:
            continuation = tokenizer.encode(question["context"] + choice).ids[len(encoded):]
            logprob, greedy = score(encoded or [PREFIX], continuation)
            lines.append({"tokens": encoded or [PREFIX], "continuation": continuation, "logprob": logprob, "greedy": greedy})
        first, second = sorted((line["logprob"] for line in lines), reverse=True)[:2]
        gap = min(gap, first - second)
        scores.append(lines)
    texts = [{"text": text, "logprob": rolling(tokenizer.encode(text).ids)} for text in ROLLING]
    rows = ",\n".join(json.dumps(line) for lines in scores for line in lines)
    print(f"{sum(line['greedy'] for lines in scores for line in lines)} greedy; the closest choice leads by {gap:.4f}")
    (HERE / "reference.json").write_text('{"questions": [\n' + rows + f'\n],\n"rolling_length": {ROLLING_LENGTH}, "rolling": {json.dumps(texts)}' + "}\n")


if __name__ == "__main__":
    main()
