#!/usr/bin/env python3
"""cluster/examples/make_smollm2.py on a tiny GGUF file whose tensors are known. Needs the packages gguf and numpy; exits with 77 without them."""

import importlib.util
import json
import struct
import sys
import tempfile
from pathlib import Path

try:
    import gguf
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

EXAMPLE = Path(__file__).parents[2] / "cluster/examples/make_smollm2.py"
HEADS, KV_HEADS, HEAD_DIM, LAYERS, WIDTH, VOCABULARY = 4, 2, 8, 2, 48, 10
HIDDEN = HEADS * HEAD_DIM


def load_example():
    spec = importlib.util.spec_from_file_location("make_smollm2", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def interleaved(rows, heads):
    """Row 2 i of a head is row i of its first half, row 2 i + 1 of the second: written as a loop, unlike the example."""
    out = np.empty_like(rows)
    dim = rows.shape[0] // heads
    for head in range(heads):
        for i in range(dim // 2):
            out[head * dim + 2 * i] = rows[head * dim + i]
            out[head * dim + 2 * i + 1] = rows[head * dim + dim // 2 + i]
    return out


def write_gguf(path, rng):
    """Returns the tensors under transformers' names."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_context_length(64)
    writer.add_vocab_size(VOCABULARY)
    writer.add_rope_freq_base(5000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + list("abcdefg"))
    writer.add_token_types([3, 3, 3] + [1] * 7)
    writer.add_token_merges(["a b"])
    writer.add_chat_template("{{ messages }}")
    tensors = {}

    def add(theirs, ours, shape, as_stored=lambda rows: rows):
        tensors[ours] = rng.standard_normal(shape).astype(np.float32)
        writer.add_tensor(theirs, as_stored(tensors[ours]))

    add("token_embd.weight", "model.embed_tokens.weight", (VOCABULARY, HIDDEN))
    add("output_norm.weight", "model.norm.weight", (HIDDEN,))
    for layer in range(LAYERS):
        theirs, ours = f"blk.{layer}.", f"model.layers.{layer}."
        add(theirs + "attn_norm.weight", ours + "input_layernorm.weight", (HIDDEN,))
        add(theirs + "ffn_norm.weight", ours + "post_attention_layernorm.weight", (HIDDEN,))
        add(theirs + "attn_q.weight", ours + "self_attn.q_proj.weight", (HIDDEN, HIDDEN), lambda rows: interleaved(rows, HEADS))
        add(theirs + "attn_k.weight", ours + "self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN), lambda rows: interleaved(rows, KV_HEADS))
        add(theirs + "attn_v.weight", ours + "self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN))
        add(theirs + "attn_output.weight", ours + "self_attn.o_proj.weight", (HIDDEN, HIDDEN))
        add(theirs + "ffn_gate.weight", ours + "mlp.gate_proj.weight", (WIDTH, HIDDEN))
        add(theirs + "ffn_up.weight", ours + "mlp.up_proj.weight", (WIDTH, HIDDEN))
        add(theirs + "ffn_down.weight", ours + "mlp.down_proj.weight", (HIDDEN, WIDTH))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def read_safetensors(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    del header["__metadata__"]
    return {name: (entry["dtype"], entry["shape"], content[8 + length:][slice(*entry["data_offsets"])]) for name, entry in header.items()}


def widened(stored_type, content):
    if stored_type == "BF16":
        return (np.frombuffer(content, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(content, {"F16": np.float16, "F32": np.float32}[stored_type]).astype(np.float32)


def main():
    example = load_example()
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "tiny.gguf")
        expected = write_gguf(source, np.random.default_rng(1))
        for dtype, shards, bound in (("fp32", 1, 0), ("fp16", 1, 2**-11), ("bf16", 3, 2**-8)):
            folder = Path(scratch, dtype)
            example.make(source, folder, dtype, shards)
            found = {}
            for file in folder.glob("*.safetensors"):
                found |= read_safetensors(file)
            assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())
            for name, (stored_type, shape, content) in found.items():
                assert shape == list(expected[name].shape), name
                error = np.abs(widened(stored_type, content).reshape(shape) - expected[name])
                assert (error <= bound * np.abs(expected[name])).all(), (name, dtype, error.max())
            assert (folder / "model.safetensors.index.json").exists() == (shards > 1)
        config = json.loads((folder / "config.json").read_text())
        assert (config["num_key_value_heads"], config["rope_theta"], config["tie_word_embeddings"]) == (KV_HEADS, 5000.0, True)
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        assert [token["id"] for token in tokenizer["added_tokens"]] == [0, 1, 2]
    print("passed")


if __name__ == "__main__":
    main()
