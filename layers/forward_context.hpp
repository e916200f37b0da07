// What a forward pass uses beside its inputs: passed down, never global.
#pragma once

#include <kernels/ops.hpp>
#include <kernels/workspace.hpp>
#include <parallel/communicator.hpp>

#include <atomic>

namespace maniple {

struct ForwardContext {
  Ops& ops;
  Workspace& workspace;
  Communicator& tensor_group;
  DType activation;              // bf16 or fp32
  std::atomic<uint32_t>& layer;  // where the forward is, for the health thread
};

// A rank's place in its tensor group: what sharding needs to know.
struct TensorRank {
  int rank = 0;
  int size = 1;
};

}  // namespace maniple
