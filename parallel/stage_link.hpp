// What crosses between the stages of a pipeline: a step's rows of the residual stream, from each tensor rank to
// the same one of the next stage, while both sides compute.
#pragma once

#include <kernels/tensor/tensor.hpp>
#include <parallel/collective_counts.hpp>

#include <cstdint>

namespace maniple {

// The plan that rows belong to; both ends have it.
struct StageStep {
  uint64_t step = 0;
  uint64_t state_hash = 0;
};

// The rows of the largest step, and of which type.
struct StageRows {
  int64_t most = 0;
  int64_t width = 0;
  DType dtype = DType::bf16;
};

// Rows are in the device's memory. Calls join its order of work. No captured graph holds one.
class StageLink {
 public:
  virtual ~StageLink() = default;

  // Sends [rows, width] of a step to the next stage, from memory of the link's own.
  virtual void send(const StageStep& step, ConstTensorView rows) = 0;
  // The [rows, width] that the stage before has sent for this step. They may be overwritten, and are valid
  // until release().
  virtual TensorView take(const StageStep& step, int64_t rows) = 0;
  virtual void release() = 0;
  // Lets messages move while this rank computes.
  virtual void poll() {}
  virtual double seconds() const = 0;           // that the host waited so far
  virtual CollectiveCounts counts() const = 0;  // send and receive
};

}  // namespace maniple
