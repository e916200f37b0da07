// What a forward pass uses besides its inputs: an argument of every forward, never a global. The tensors that
// layers return are in the workspace.
#pragma once

#include <kernels/ops.hpp>
#include <kernels/workspace.hpp>
#include <layers/residual_rows.hpp>
#include <parallel/groups.hpp>

#include <atomic>
#include <span>

namespace maniple {

struct ForwardContext {
  Ops& ops;
  Workspace& workspace;
  const Groups& groups;
  DType activation;                   // bf16 or fp32
  std::atomic<uint32_t>& layer;       // the layer in progress, for the health thread
  ResidualRows rows = {};             // of this rank in this step
  ConstTensorView past_lengths = {};  // of the step's sequences; negative for padding rows
  // Of a shared context: the step's tokens, up to shared_tokens in each. What ranks exchange is some 100 times a token's row.
  std::span<const AttentionBatch> blocks = {};
};

inline constexpr int64_t shared_tokens = 256;

}  // namespace maniple
