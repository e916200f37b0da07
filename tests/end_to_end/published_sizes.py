#!/usr/bin/env python3
"""Models that need a cluster, with the sizes that their publishers give and random weights.
usage: published_sizes.py PROGRAM                     what doctor needs for their weights, against a calculation of its own (within 2 %)
       published_sizes.py PROGRAM --run MPIRUN...     also generates with two layers of each (some hundred experts of full width; 16 GB of memory,
                                                      a quarter of an hour or more): the same bytes on one rank, with --tp 2 and with --tp 2 --ep 2"""
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
INT4 = {"quant_method": "compressed-tensors", "format": "pack-quantized",
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}}}}
# Bytes of a weight in memory: a code, and its part of a scale of two bytes for each row and group of columns.
IN_BF16, IN_FP8, IN_INT4 = 2, 1 + 2 / 128, 1 / 2 + 2 / 32

COMMON = {"hidden_act": "silu", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "num_experts_per_tok": 8, "max_position_embeddings": 131072}
DEEPSEEK = COMMON | {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 61, "first_k_dense_replace": 3, "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1, "n_group": 8, "topk_group": 4,
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True, "routed_scaling_factor": 2.5, "rms_norm_eps": 1e-6, "rope_theta": 10000,
    "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096},
    "vocab_size": 129280, "eos_token_id": 1, "quantization_config": FP8}
KIMI = DEEPSEEK | {
    "model_type": "kimi_k2", "first_k_dense_replace": 1, "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384, "n_group": 1, "topk_group": 1,
    "routed_scaling_factor": 2.827, "rope_theta": 50000, "rope_scaling": DEEPSEEK["rope_scaling"] | {"factor": 64, "beta_fast": 1}, "vocab_size": 163840,
    "quantization_config": INT4}
GLM = COMMON | {
    "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "num_hidden_layers": 92, "first_k_dense_replace": 3, "hidden_size": 5120,
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "attention_bias": True,
    "n_routed_experts": 160, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "use_qk_norm": True,
    "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5, "rope_theta": 1000000, "vocab_size": 151552, "eos_token_id": 151329}
MINIMAX = COMMON | {
    "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "num_hidden_layers": 62, "hidden_size": 3072, "intermediate_size": 1536,
    "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256, "scoring_func": "sigmoid", "use_qk_norm": True,
    "use_routing_bias": True, "rotary_dim": 64, "rms_norm_eps": 1e-6, "rope_theta": 5000000, "vocab_size": 200064, "eos_token_id": 200020, "quantization_config": FP8}


def latent(c):
    """(weights of the projections, those of kv_b, which is decoded) of a layer"""
    heads, rank = c["num_attention_heads"], c["kv_lora_rank"]
    queries = c["q_lora_rank"] * (c["hidden_size"] + heads * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]))
    return queries + c["hidden_size"] * (rank + c["qk_rope_head_dim"] + heads * c["v_head_dim"]), rank * heads * (c["qk_nope_head_dim"] + c["v_head_dim"])


def grouped(c):
    return 2 * c["hidden_size"] * c["head_dim"] * (c["num_attention_heads"] + c["num_key_value_heads"]), 0


def weight_bytes(c, attention, layers, experts):
    """attention: weights of a layer, and those that stay in bf16; layers: bytes of a weight outside of routed experts; experts: of theirs"""
    mlp = 3 * c["hidden_size"]
    dense, count = c.get("first_k_dense_replace", 0), c["num_hidden_layers"]
    routed, width = c.get("n_routed_experts") or c["num_local_experts"], c.get("moe_intermediate_size", c["intermediate_size"])
    coded, in_bf16 = attention(c)
    shared = c.get("n_shared_experts", 0) * mlp * width
    return (count * (coded * layers + in_bf16 * IN_BF16) + dense * mlp * c["intermediate_size"] * layers
            + (count - dense) * (routed * mlp * width * experts + shared * layers + routed * c["hidden_size"] * 4)
            + 2 * c["vocab_size"] * c["hidden_size"] * IN_BF16)


MODELS = {"DeepSeek-V3": (DEEPSEEK, weight_bytes(DEEPSEEK, latent, IN_FP8, IN_FP8)), "Kimi-K2": (KIMI, weight_bytes(KIMI, latent, IN_BF16, IN_INT4)),
          "GLM-4.6": (GLM, weight_bytes(GLM, grouped, IN_BF16, IN_BF16)),
          "GLM-4.6, experts in INT4": (GLM | {"quantization_config": INT4}, weight_bytes(GLM, grouped, IN_BF16, IN_INT4)),
          "MiniMax-M2": (MINIMAX, weight_bytes(MINIMAX, grouped, IN_FP8, IN_FP8))}


def plan_differs(program, folder, name, config, expected):
    (folder / "config.json").write_text(json.dumps(config))
    done = subprocess.run([program, "doctor", "--quick", "--model", folder, "--load", "random"], capture_output=True, text=True)
    told = re.search(r"needs of a rank: ([\d.]+) GiB for weights", done.stdout)
    share = float(told[1]) * 2**30 / expected if told else 0
    good = abs(share - 1) <= 0.02
    print("ok " if good else "BAD", f"{name}: doctor tells {told and told[1]} GiB of weights, {expected / 2**30:.1f} calculated ({share:.3f})", flush=True)
    if not told:
        print(done.stdout + done.stderr)
    return not good


def texts_differ(program, mpirun, folder, name, config):
    small = copy.deepcopy(config) | {"num_hidden_layers": 2}
    if "first_k_dense_replace" in small:
        small["first_k_dense_replace"] = 1
    (folder / "config.json").write_text(json.dumps(small))
    prompts = [[100 * i, 5, 77, 999 * i, 1234, 42, 9, 8, 7] for i in (1, 2, 3)]
    (folder / "in").write_text("".join(json.dumps({"id": i, "tokens": tokens, "max_tokens": 6, "temperature": 0, "ignore_eos": True, "logprobs": 2}) + "\n"
                                       for i, tokens in enumerate(prompts)))
    results = {}
    for options in ([], ["--tp", "2"], ["--tp", "2", "--ep", "2"]):
        command = [*mpirun, "-n", "2" if options else "1", program, "generate", "--model", folder, "--load", "random", "--in", folder / "in", "--out", folder / "out",
                   "--overwrite", "--max-model-len", "512", "--max-num-seqs", "8", "--kv-memory", "64M", *options]
        done = subprocess.run(command, capture_output=True, text=True)
        results[" ".join(options)] = (folder / "out").read_text() if done.returncode == 0 else done.stderr
        print("ok " if done.returncode == 0 else "BAD", f"{name}, two layers {' '.join(options)}", flush=True)
    if len(set(results.values())) == 1:
        return False
    print(f"BAD {name}: {json.dumps(results, indent=1)}")
    return True


def main(program, mpirun):
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "HWLOC_COMPONENTS": "-gl"}
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (config, expected) in MODELS.items():
            failures += plan_differs(program, pathlib.Path(folder), name, config, expected)
            failures += bool(mpirun) and texts_differ(program, mpirun, pathlib.Path(folder), name, config)
    sys.exit(failures > 0)


if __name__ == "__main__":
    if len(sys.argv) < 2 or (len(sys.argv) > 2 and sys.argv[2] != "--run"):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[3:])
