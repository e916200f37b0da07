#!/usr/bin/env python3
"""Fresh random models of every supported architecture, in odd shapes, and fresh prompts: log-probabilities beside those of transformers.

usage: against_transformers.py [--program PATH] [--mpirun COMMAND] [--dtype TYPE] [--models N] [--seed N] [OPTION...]   (options for maniple)

Each model runs on one rank and on a random grid. At each greedy token the five best log-probabilities are compared with those that transformers
compute in fp32 from the same weights and tokens: fp32 differs by at most 2e-4; bf16 and fp16 by no more, as root mean square, than 1.2 times
what transformers themselves differ in that type. Needs Python with torch and transformers."""

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import (AutoModelForCausalLM, DeepseekV2Config, DeepseekV3Config, Glm4MoeConfig, Glm4MoeLiteConfig, GptOssConfig, HYV3Config, LlamaConfig,
                          MiniMaxM2Config, MinistralConfig, MistralConfig, MixtralConfig, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig)

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
EXACT = 2e-4
LATENT = (DeepseekV2Config, DeepseekV3Config, Glm4MoeLiteConfig)


def random_config(rng):
    pick = rng.choice
    architecture = pick([Qwen3Config, LlamaConfig, Qwen2Config, MistralConfig, MinistralConfig, Qwen3MoeConfig, MixtralConfig, Glm4MoeConfig, HYV3Config,
                         MiniMaxM2Config, Qwen2MoeConfig, GptOssConfig, *LATENT])
    kv_heads = pick([1, 2, 3, 4])
    heads, head_dim = kv_heads * pick([1, 2, 3, 4, 7]), pick([6, 8, 16, 24, 32, 64, 96, 128])
    rope = {"rope_type": "default", "rope_theta": pick([1e4, 5e5, 1e6])}
    shape = {"vocab_size": rng.randint(100, 700), "hidden_size": heads * pick([8, 10, 16, 24]), "intermediate_size": pick([32, 64, 96, 112, 208]),
             "num_hidden_layers": rng.randint(1, 3), "num_attention_heads": heads, "num_key_value_heads": kv_heads, "max_position_embeddings": 512,
             "rms_norm_eps": pick([1e-5, 1e-6]), "tie_word_embeddings": pick([True, False]), "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if architecture in (Qwen2Config, Qwen2MoeConfig):
        head_dim = pick([16, 32, 64])
        shape["hidden_size"] = heads * head_dim
    elif architecture not in LATENT:
        shape["head_dim"] = head_dim
    if architecture is LlamaConfig:
        shape |= {"attention_bias": pick([True, False]), "mlp_bias": pick([True, False])}
        if pick([True, False]):
            rope |= {"rope_type": "llama3", "factor": pick([2.0, 8.0]), "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": pick([64, 128])}
    experts = pick([2, 5, 8, 12, 32])
    if architecture is Qwen3MoeConfig:
        shape |= {"num_experts": experts, "num_experts_per_tok": rng.randint(1, min(experts, 6)), "moe_intermediate_size": pick([24, 40, 48, 72, 112]),
                  "norm_topk_prob": pick([True, False]), "decoder_sparse_step": pick([1, 1, 2]), "mlp_only_layers": pick([[], [0]])}
    if architecture is MixtralConfig:
        shape |= {"num_local_experts": experts, "num_experts_per_tok": rng.randint(1, min(experts, 3))}
    if architecture in (Glm4MoeConfig, HYV3Config, Qwen2MoeConfig, *LATENT):
        shape |= {"num_experts_per_tok": rng.randint(1, min(experts, 6)), "moe_intermediate_size": pick([24, 40, 48, 72, 112])}
    if architecture in (Glm4MoeConfig, *LATENT):
        groups = pick([1, 2, 4]) if experts % 4 == 0 and experts > 4 else 1
        kept = rng.randint(1, groups)
        shape |= {"n_routed_experts": experts, "n_shared_experts": pick([1, 2]), "n_group": groups, "topk_group": kept,
                  "num_experts_per_tok": rng.randint(1, min(experts // groups * kept, 6)), "norm_topk_prob": pick([True, False]),
                  "routed_scaling_factor": pick([1.0, 2.5]), "first_k_dense_replace": pick([0, 1])}
    if architecture is Glm4MoeConfig:
        shape |= {"use_qk_norm": pick([True, False]), "attention_bias": pick([True, False])}
    if architecture in LATENT:
        shape |= {"num_key_value_heads": heads, "q_lora_rank": pick([None, 20, 48]), "kv_lora_rank": pick([16, 40, 64]), "qk_nope_head_dim": pick([8, 24, 32]),
                  "qk_rope_head_dim": pick([4, 8, 16]), "v_head_dim": pick([8, 16, 40])}
    if architecture is DeepseekV2Config:
        shape |= {"topk_method": pick(["greedy", "group_limited_greedy"]), "norm_topk_prob": False}
    if architecture is DeepseekV3Config:
        shape["rope_interleave"] = pick([True, False])
    if architecture is HYV3Config:
        shape |= {"num_experts": experts, "router_scaling_factor": pick([1.0, 2.826])}
    if architecture is Qwen2MoeConfig:
        shape |= {"num_experts": experts, "shared_expert_intermediate_size": pick([40, 72, 96]), "norm_topk_prob": pick([True, False]),
                  "qkv_bias": pick([True, False]), "mlp_only_layers": pick([[], [0]])}
    if architecture is GptOssConfig:
        shape |= {"swiglu_limit": pick([1.0, 3.0, 7.0]), "attention_bias": pick([True, False])}
    if architecture in (MiniMaxM2Config, GptOssConfig):
        shape |= {"num_local_experts": experts, "num_experts_per_tok": rng.randint(1, min(experts, 6))}
    if architecture in (Glm4MoeConfig, MiniMaxM2Config):
        rope["partial_rotary_factor"] = pick([0.5, 1.0]) if head_dim % 4 == 0 else 1.0
    if rope["rope_type"] == "default" and pick([True, False, False]):
        rope |= {"rope_type": "yarn", "factor": pick([2.0, 8.0]), "original_max_position_embeddings": pick([64, 128]), "truncate": pick([True, False])}
        if architecture in LATENT and pick([True, False]):
            rope |= {"mscale": pick([0.707, 1.0]), "mscale_all_dim": pick([0.707, 1.0])}
    if architecture is Qwen3Config:
        shape["attention_bias"] = pick([True, False])
    if architecture in (MistralConfig, MinistralConfig, MixtralConfig):
        shape["sliding_window"] = pick([None, 5, 16, 40])
    if architecture is GptOssConfig:
        shape["sliding_window"] = pick([5, 16, 40])
    if architecture in (MinistralConfig, GptOssConfig) and shape["sliding_window"]:
        shape["layer_types"] = rng.choices(["sliding_attention", "full_attention"], k=shape["num_hidden_layers"])
    if architecture in (Qwen2Config, Qwen3Config, Qwen2MoeConfig, Qwen3MoeConfig) and pick([True, False]):
        shape |= {"use_sliding_window": True, "sliding_window": pick([5, 16, 40]), "max_window_layers": pick([0, 1, 2])}
    return architecture(**shape, rope_parameters=rope)


def save_random_model(config, dtype, folder, rng):
    torch.manual_seed(rng.getrandbits(32))
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.7, 1.3)  # shows a forgotten one
            else:
                weight.normal_(0, 0.3 if "bias" in name or "embed" in name else 1.5 / weight.shape[-1] ** 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("bias"):
                buffer.normal_(0, 0.3)
    model.to(dtype).save_pretrained(folder, max_shard_size=rng.choice(["100KB", "1GB"]))


def random_requests(config, rng):
    for number, length in enumerate(rng.choices([1, 2, 15, 16, 17, 33, 100, 257], k=6)):
        yield {"id": str(number), "tokens": rng.choices(range(3, config.vocab_size), k=length), "max_tokens": rng.randint(1, 24), "ignore_eos": True,
               "temperature": 0, "logprobs": 5}


def random_grid(config, rng):
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    possible = [tp for tp in (2, 3, 4) if heads % tp == 0 and (kv_heads % tp == 0 or tp % kv_heads == 0)]
    tp = rng.choice(possible or [1])
    return tp, tp * rng.choice([1, 2] if tp < 3 else [1])


def run(arguments, folder, requests, tp, ranks, rng, model=None):
    (folder / "in.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests))
    command = [*shlex.split(arguments.mpirun), "-n", str(ranks), arguments.program, "generate", "--model", model or folder, "--in", folder / "in.jsonl",
               "--dtype", arguments.dtype, "--tp", str(tp), "--threads", "1", "--max-num-seqs", "4", "--block-size", rng.choice(["16", "64", "256"]),
               "--max-num-batched-tokens", rng.choice(["16", "48", "512"]), *arguments.options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")
    return {result["id"]: result for result in map(json.loads, done.stdout.splitlines())}


@torch.inference_mode()
def log_probabilities(model, tokens):
    return model(torch.tensor([tokens])).logits[0].double().log_softmax(-1)


def root_mean_square(numbers):
    return (sum(number * number for number in numbers) / len(numbers)) ** 0.5


def compare(requests, results, exact, same_type):
    """Differences of ours and of theirs from the exact model, and how much likelier than the chosen token another was."""
    ours, theirs, regret = [], [], 0
    for request in requests:
        result = results[request["id"]]
        if len(result["tokens"]) != request["max_tokens"]:
            raise RuntimeError(f"request {request['id']} ended after {len(result['tokens'])} of {request['max_tokens']} tokens")
        tokens = request["tokens"] + result["tokens"]
        right, rounded = log_probabilities(exact, tokens), log_probabilities(same_type, tokens)
        for place, step in enumerate(result["logprobs"], start=len(request["tokens"]) - 1):
            regret = max(regret, (right[place].max() - right[place, tokens[place + 1]]).item())
            for each in step["top"]:
                ours.append(each["logprob"] - right[place, each["token"]].item())
                theirs.append((rounded[place, each["token"]] - right[place, each["token"]]).item())
    return ours, theirs, regret


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/maniple")
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none --mca btl self,vader --mca mpi_yield_when_idle 1")
    parser.add_argument("--dtype", choices=TYPES, default="fp32")
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments, arguments.options = parser.parse_known_args()
    failures = 0
    for number in range(arguments.models):
        rng = random.Random(arguments.seed + number)
        with tempfile.TemporaryDirectory() as name:
            folder, config = Path(name), random_config(rng)
            save_random_model(config, TYPES[arguments.dtype], folder, rng)
            exact, same_type = (AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, experts_implementation="eager").eval() for dtype in (torch.float32, TYPES[arguments.dtype]))
            requests = list(random_requests(config, rng))
            for tp, ranks in ((1, 1), random_grid(config, rng)):
                ours, theirs, regret = compare(requests, run(arguments, folder, requests, tp, ranks, rng), exact, same_type)
                largest, ours, theirs = max(map(abs, ours)), root_mean_square(ours), root_mean_square(theirs)
                good = max(largest, regret) <= EXACT if arguments.dtype == "fp32" else ours <= 1.2 * theirs
                failures += not good
                print("ok " if good else "BAD", f"largest difference {largest:.1e}, rms {ours:.1e}, theirs {theirs:.1e}; --seed {arguments.seed + number}, {ranks} ranks, "
                      f"tp {tp}: {config.model_type}, {config.num_attention_heads} heads, {config.num_key_value_heads} of KV, "
                      f"{config.rope_parameters['rope_type']} rope, hidden {config.hidden_size}, vocabulary {config.vocab_size}", flush=True)
    print(f"{failures} of {2 * arguments.models} runs differ")
    sys.exit(failures > 0)


if __name__ == "__main__":
    os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    main()
