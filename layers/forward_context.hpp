// What a forward pass uses beside its inputs: passed down, never global.
#pragma once

#include <kernels/ops.hpp>
#include <kernels/workspace.hpp>
#include <parallel/groups.hpp>

#include <atomic>

namespace maniple {

struct ForwardContext {
  Ops& ops;
  Workspace& workspace;
  const Groups& groups;
  DType activation;              // bf16 or fp32
  std::atomic<uint32_t>& layer;  // where the forward is, for the health thread
};

}  // namespace maniple
