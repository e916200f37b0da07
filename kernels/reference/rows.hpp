// Rows of tensors as fp32, and the one sum of products that the reference uses.
#pragma once

#include <kernels/ops.hpp>

#include <span>
#include <vector>

namespace maniple::reference {

using Floats = std::vector<float>;

// Elements [begin, begin + count) of a bf16, fp16 or fp32 tensor, counted from its start.
Floats read(ConstTensorView view, int64_t begin, int64_t count);
// Rounds once to the view's type.
void write(TensorView view, int64_t begin, std::span<const float> values);

// Sum of a[i] * b[i]: sixteen lanes, lane j adds the elements j, j + 16, ... in order; then a binary tree
// over the lanes.
float dot(const float* a, const float* b, int64_t count);
// What a gate makes of what it multiplies.
float gated(GateActivation activation, float gate, float up);
// Adds neighbours, then pairs of neighbours, ...: the order of all sums over slices and ranks.
float tree_sum(std::span<float> parts);

// Ops::add_gated and Ops::head_squares of some tokens, also on the CPU backend.
void add_gated(ConstTensorView x, ConstTensorView gate, IndexRange tokens, TensorView sum);
void head_squares(ConstTensorView qkv, const HeadLayout& heads, IndexRange tokens, TensorView out);

}  // namespace maniple::reference
