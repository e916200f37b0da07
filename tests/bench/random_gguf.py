#!/usr/bin/env python3
"""A GGUF file with random weights and no vocabulary, for benchmarks of llama.cpp: Qwen3-0.6B's shape in bf16, or eight layers of gpt-oss-20b's with a
vocabulary of 16,384, experts in MXFP4 and the rest in bf16. Needs Python's gguf, or llama.cpp's gguf-py in PYTHONPATH.
usage: random_gguf.py FILE.gguf [qwen3 | gpt-oss]"""
import sys
from types import SimpleNamespace

import gguf
import numpy

SHAPES = {
    "qwen3": SimpleNamespace(hidden=1024, layers=28, heads=16, kv_heads=8, head=128, vocabulary=151936, context=40960, theta=1e6, epsilon=1e-6, mlp=3072, experts=0),
    "gpt-oss": SimpleNamespace(hidden=2880, layers=8, heads=64, kv_heads=8, head=64, vocabulary=16384, context=131072, theta=150000, epsilon=1e-5, mlp=2880, experts=32),
}
name = sys.argv[2] if len(sys.argv) > 2 else "qwen3"
shape = SHAPES[name]
writer = gguf.GGUFWriter(sys.argv[1], name)
random = numpy.random.default_rng(0)


def add_matrix(name, rows, columns):
    bits = (random.standard_normal((rows, columns), dtype=numpy.float32) * 0.02).view(numpy.uint32) >> 16
    writer.add_tensor(name + ".weight", bits.astype(numpy.uint16).view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)


def add_vector(name, *sizes, value=1):
    writer.add_tensor(name, numpy.full(sizes, value, dtype=numpy.float32))


def add_experts(name, rows, columns):
    """MXFP4: of each 32 inputs a byte of scale (2^-6 to 2^-4), then elements 0 to 15 in low nibbles, 16 to 31 in high ones."""
    blocks = random.integers(0, 256, (shape.experts, rows, columns // 32, 17), dtype=numpy.uint8)
    blocks[..., 0] = blocks[..., 0] % 3 + 121
    writer.add_tensor(name + ".weight", blocks.reshape(shape.experts, rows, -1), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
    add_vector(name + ".bias", shape.experts, rows, value=0.1)


writer.add_context_length(shape.context)
writer.add_embedding_length(shape.hidden)
writer.add_block_count(shape.layers)
writer.add_feed_forward_length(shape.mlp)
writer.add_head_count(shape.heads)
writer.add_head_count_kv(shape.kv_heads)
writer.add_key_length(shape.head)
writer.add_value_length(shape.head)
writer.add_layer_norm_rms_eps(shape.epsilon)
writer.add_rope_freq_base(shape.theta)
writer.add_file_type(gguf.LlamaFileType.MOSTLY_MXFP4_MOE if shape.experts else gguf.LlamaFileType.MOSTLY_BF16)
writer.add_vocab_size(shape.vocabulary)
writer.add_tokenizer_model("no_vocab")
if shape.experts:
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(4)
    writer.add_expert_feed_forward_length(shape.mlp)
    writer.add_sliding_window(128)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(32)
    writer.add_rope_scaling_orig_ctx_len(4096)

add_matrix("token_embd", shape.vocabulary, shape.hidden)  # Qwen3's is tied: the output matrix too
add_vector("output_norm.weight", shape.hidden)
if shape.experts:
    add_matrix("output", shape.vocabulary, shape.hidden)
for layer in range(shape.layers):
    block = f"blk.{layer}."
    attention = [("attn_q", shape.heads * shape.head, shape.hidden), ("attn_k", shape.kv_heads * shape.head, shape.hidden),
                 ("attn_v", shape.kv_heads * shape.head, shape.hidden), ("attn_output", shape.hidden, shape.heads * shape.head)]
    for part, rows, columns in attention:
        add_matrix(block + part, rows, columns)
    add_vector(block + "attn_norm.weight", shape.hidden)
    if not shape.experts:
        for part, rows, columns in [("ffn_gate", shape.mlp, shape.hidden), ("ffn_up", shape.mlp, shape.hidden), ("ffn_down", shape.hidden, shape.mlp)]:
            add_matrix(block + part, rows, columns)
        for part, width in [("ffn_norm", shape.hidden), ("attn_q_norm", shape.head), ("attn_k_norm", shape.head)]:
            add_vector(block + part + ".weight", width)
        continue
    for part, rows, _ in attention:
        add_vector(block + part + ".bias", rows, value=0.1)
    add_vector(block + "attn_sinks.weight", shape.heads)
    add_vector(block + "post_attention_norm.weight", shape.hidden)
    writer.add_tensor(block + "ffn_gate_inp.weight", random.standard_normal((shape.experts, shape.hidden), dtype=numpy.float32) * 0.02)
    add_vector(block + "ffn_gate_inp.bias", shape.experts, value=0.1)
    for part, rows, columns in [("ffn_gate_exps", shape.mlp, shape.hidden), ("ffn_up_exps", shape.mlp, shape.hidden), ("ffn_down_exps", shape.hidden, shape.mlp)]:
        add_experts(block + part, rows, columns)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
