#!/usr/bin/env python3
"""Compares the defaults of absent fields in runtime/checkpoint/loading/model_config.cpp with the config classes of transformers (5.24).

usage: config_defaults.py     needs Python with transformers; exits with 1 and a line for each difference"""

import re
import sys
from pathlib import Path

from transformers import (DeepseekV2Config, DeepseekV3Config, Glm4MoeConfig, Glm4MoeLiteConfig, GptOssConfig, HYV3Config, LlamaConfig, MiniMaxM2Config, MistralConfig,
                          MixtralConfig, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig)

CLASSES = {"qwen3": Qwen3Config, "qwen2": Qwen2Config, "qwen3_moe": Qwen3MoeConfig, "llama": LlamaConfig, "mistral": MistralConfig,
           "mixtral": MixtralConfig, "qwen2_moe": Qwen2MoeConfig, "glm4_moe": Glm4MoeConfig, "minimax_m2": MiniMaxM2Config, "hy_v3": HYV3Config,
           "deepseek_v2": DeepseekV2Config, "deepseek_v3": DeepseekV3Config, "glm4_moe_lite": Glm4MoeLiteConfig, "gpt_oss": GptOssConfig}
LATENT = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")
FIELDS = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
          "max_position_embeddings", "rms_norm_eps", "rope_theta", "sliding_window", "eos_token_id"]


def defaults_of(name, cls):
    config = cls()
    values = {field: getattr(config, field, None) for field in FIELDS}
    values["rope_theta"] = (getattr(config, "rope_parameters", None) or {}).get("rope_theta") or config.rope_theta
    if cls is LlamaConfig or name in LATENT:
        values["num_key_value_heads"] = 0  # as many as heads, whatever their number
    if name in LATENT or values["head_dim"] in (None, config.hidden_size // config.num_attention_heads) and cls is not Qwen3Config:
        values["head_dim"] = 0
    if hasattr(config, "use_sliding_window"):
        values["sliding_window"] = cls(use_sliding_window=True).sliding_window
    return [float(values[field] or 0) if field != "eos_token_id" else float(-1 if values[field] is None else values[field]) for field in FIELDS]


def main():
    source = Path(__file__).parents[3] / "runtime/checkpoint/loading/model_config.cpp"
    ours = dict(re.findall(r"constexpr Defaults (\w+)\{([^}]*)\}", source.read_text()))
    different = 0
    for name, cls in CLASSES.items():
        numbers = [float(number) for number in ours[name].split(",")]
        numbers += [-1.0] * (len(FIELDS) - len(numbers))
        for field, mine, theirs in zip(FIELDS, numbers, defaults_of(name, cls)):
            if mine != theirs:
                print(f"{name}: {field} is {mine:g}, {cls.__name__} has {theirs:g}")
                different += 1
    print(f"{len(CLASSES)} config classes, {different} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
