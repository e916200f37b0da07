#!/usr/bin/env python3
"""Fresh random quantised models, dense and with experts, in every published format: odd shapes, modules left out, one file or three; with golden data.

usage: quantised_models.py FOLDER [--models N] [--seed N]      needs Python with torch, transformers, compressed-tensors
then:  tests/golden/run.sh --cover SEED FOLDER/models/*        fp32 tokens, and the same bytes on grids, paths and types
       MANIPLE_TEST_DATA=FOLDER build/release/model_test --gtest_filter='Quantised/*'        logits

tests/data/models/make_quantised.py computes the golden data. By luck a model may differ whose activations are rounded (one other code moves its logits by 0.1), or with a router in bf16 (one other expert moves a row)."""

import argparse
import random
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "data/models"))
import make_quantised as quantised
import torch
from transformers import (GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

EXPERTS = (MixtralForCausalLM, Qwen3MoeForCausalLM)


def random_scheme(rng, experts):
    """a scheme, what the widths of its inputs are multiples of, and whether it rounds activations"""
    pick = rng.choice
    size, v2, sym = pick([16, 32, 64, 128, -1]), pick([True, False]), pick([True, False])
    types = [torch.bfloat16, torch.float32]
    kind = pick(["gptq", "gptq says v1", "awq", "packed", "int8", "fp8", "fp8 static", "fp8 kv", "fp8 block", *(() if experts else ["gptq act order"])])
    if kind == "gptq act order":
        size = max(size, 16)
        return quantised.Gptq(pick([4, 8]), size, sym, act=True, seed=rng.randrange(1000)), max(size, 32), False
    if kind == "gptq":
        return quantised.Gptq(pick([4, 8]), size, sym, v2=v2, with_g_idx=pick([True, False])), max(size, 32), False
    if kind == "gptq says v1":
        return quantised.Gptq(4, size, v2=True, declare_v2=False), max(size, 32), False
    if kind == "awq":
        return quantised.Awq(max(size, 16)), max(size, 32), False
    if kind == "packed":
        return quantised.CtPacked(pick([4, 8]), size, sym), max(size, 32), False
    if kind == "fp8 block":
        return quantised.Fp8Block(pick(types)), 1024, True  # eight blocks: ranks cut none
    if kind == "int8":
        return quantised.CtInt8(pick(types)), pick([8, 16, 32]), True
    return quantised.CtFp8(static=kind == "fp8 static" or kind == "fp8 kv" and v2, kv=kind == "fp8 kv"), pick([8, 16, 32]), True


def random_config(rng, model, config, unit, layers):
    pick = rng.choice
    kv_heads = pick([1, 2, 4])
    heads, head_dim = kv_heads * pick([1, 2, 4]), pick([16, 32, 64])
    while heads * head_dim % unit:
        heads *= 2
    hidden = heads * head_dim if model is Qwen2ForCausalLM else min(unit, 128) * max(1, pick([96, 128, 192, 256]) // min(unit, 128))
    width = unit * max(1, pick([64, 96, 160, 224, 448]) // unit)
    shape = {"vocab_size": rng.randint(200, 600), "hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
             "num_key_value_heads": kv_heads, "tie_word_embeddings": pick([True, False, False]), "rms_norm_eps": pick([1e-5, 1e-6]), "rope_theta": pick([1e4, 1e6])}
    if model is not Qwen2ForCausalLM:
        shape["head_dim"] = head_dim
    if model is LlamaForCausalLM:
        shape |= {"attention_bias": pick([True, False]), "mlp_bias": pick([True, False])}
    if model in (MistralForCausalLM, MixtralForCausalLM):
        shape["sliding_window"] = None
    if model is GptOssForCausalLM:
        shape |= {"num_local_experts": pick([4, 8, 12]), "num_experts_per_tok": rng.randint(1, 4), "sliding_window": pick([5, 24, 60]), "swiglu_limit": pick([3.0, 7.0]),
                  "layer_types": rng.choices(["sliding_attention", "full_attention"], k=layers), "attention_bias": pick([True, False])}
    if model is MixtralForCausalLM:
        shape |= {"num_local_experts": 8, "num_experts_per_tok": rng.randint(1, 3)}
    if model is Qwen3MoeForCausalLM:
        shape |= {"num_experts": 8, "num_experts_per_tok": rng.randint(1, 3), "moe_intermediate_size": width, "norm_topk_prob": pick([True, False]), "mlp_only_layers": []}
    return config(**quantised.sizes(**shape))


def left_out(rng, scheme, model, layers):
    """modules in floating point: which, and how the publisher's configuration says so"""
    if model is GptOssForCausalLM:
        return None, []
    if model in EXPERTS:
        router = "mlp.gate" if model is Qwen3MoeForCausalLM else "block_sparse_moe.gate"
        if isinstance(scheme, quantised.Awq):
            return None, ["gate"]
        if isinstance(scheme, quantised.Gptq):
            return None, []
        if isinstance(scheme, quantised.Fp8Block):
            return None, [f"model.layers.{i}.{router}" for i in range(layers)]
        return None, [f"re:.*{router}$"]
    if layers == 1 or rng.choice([True, False]):
        return None, []
    part = rng.choice(["mlp.down_proj", "self_attn.o_proj"])
    if isinstance(scheme, quantised.Awq):
        return lambda name: part in name, [part]
    name = f"model.layers.0.{part}"
    pattern = name.replace(".", r"\.")
    listed = {quantised.Gptq: pattern, quantised.Fp8Block: name}.get(type(scheme), rng.choice([name, f"re:{pattern}$"]))
    return lambda module: module == name, [listed]


def make(folder, name, rng):
    model, config = rng.choice([(Qwen3ForCausalLM, Qwen3Config), (LlamaForCausalLM, LlamaConfig), (Qwen2ForCausalLM, Qwen2Config), (MistralForCausalLM, MistralConfig),
                                (MixtralForCausalLM, MixtralConfig), (Qwen3MoeForCausalLM, Qwen3MoeConfig), (GptOssForCausalLM, GptOssConfig)])
    scheme, unit, rounds = (quantised.Mxfp4(), 32, False) if model is GptOssForCausalLM else random_scheme(rng, model in EXPERTS)
    config = random_config(rng, model, config, unit, rng.randint(1, 2 if rounds else 3))
    skip, skipped = left_out(rng, scheme, model, config.num_hidden_layers)
    print(f"{name}: {model.__name__}, {type(scheme).__name__} {vars(scheme)}, left out {skipped}", flush=True)
    lengths = [1, rng.randint(2, 30), rng.randint(31, 150)]
    scale = 0.5 if rounds and not config.tie_word_embeddings else None
    quantised.make(folder, name, model, config, scheme, rng.randrange(1 << 20), rng.choice([torch.bfloat16, torch.float16]), lengths, 10, skip=skip, skipped=skipped,
                   scale=scale, schema=rng.choice(["new", "old"]), shards=rng.choice([1, 1, 3]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.models):
        try:
            make(arguments.folder / "models", f"q-{seed}", random.Random(seed))
        except SystemExit as no_clear_path:  # greedy tokens hang on the last bits: nothing to compare
            print(no_clear_path, flush=True)
            shutil.rmtree(arguments.folder / "models" / f"q-{seed}")


if __name__ == "__main__":
    main()
