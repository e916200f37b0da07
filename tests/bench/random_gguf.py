#!/usr/bin/env python3
"""A GGUF file of Qwen3-0.6B's shape with random bf16 weights and no vocabulary, for benchmarks of llama.cpp. Needs Python's gguf, or llama.cpp's gguf-py in
PYTHONPATH. usage: random_gguf.py FILE.gguf"""
import sys

import gguf
import numpy

HIDDEN, MLP, LAYERS, HEADS, KV_HEADS, HEAD, VOCABULARY = 1024, 3072, 28, 16, 8, 128, 151936

writer = gguf.GGUFWriter(sys.argv[1], "qwen3")
writer.add_context_length(40960)
writer.add_embedding_length(HIDDEN)
writer.add_block_count(LAYERS)
writer.add_feed_forward_length(MLP)
writer.add_head_count(HEADS)
writer.add_head_count_kv(KV_HEADS)
writer.add_key_length(HEAD)
writer.add_value_length(HEAD)
writer.add_layer_norm_rms_eps(1e-6)
writer.add_rope_freq_base(1e6)
writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
writer.add_vocab_size(VOCABULARY)
writer.add_tokenizer_model("no_vocab")

random = numpy.random.default_rng(0)


def add_matrix(name, rows, columns):
    bits = (random.standard_normal((rows, columns), dtype=numpy.float32) * 0.02).view(numpy.uint32) >> 16
    writer.add_tensor(name + ".weight", bits.astype(numpy.uint16).view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)


def add_norm(name, width):
    writer.add_tensor(name + ".weight", numpy.ones(width, dtype=numpy.float32))


add_matrix("token_embd", VOCABULARY, HIDDEN)  # tied: the output matrix too
add_norm("output_norm", HIDDEN)
for layer in range(LAYERS):
    block = f"blk.{layer}."
    for name, rows, columns in [("attn_q", HEADS * HEAD, HIDDEN), ("attn_k", KV_HEADS * HEAD, HIDDEN), ("attn_v", KV_HEADS * HEAD, HIDDEN),
                                ("attn_output", HIDDEN, HEADS * HEAD), ("ffn_gate", MLP, HIDDEN), ("ffn_up", MLP, HIDDEN), ("ffn_down", HIDDEN, MLP)]:
        add_matrix(block + name, rows, columns)
    for name, width in [("attn_norm", HIDDEN), ("ffn_norm", HIDDEN), ("attn_q_norm", HEAD), ("attn_k_norm", HEAD)]:
        add_norm(block + name, width)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
