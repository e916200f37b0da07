// Scratch memory of a forward pass: stacks in allocations that a dry pass sizes once, so a step allocates nothing.
#pragma once

#include <kernels/tensor/tensor.hpp>

#include <algorithm>
#include <array>

namespace maniple {

class Workspace {
 public:
  // Bytes of the two stacks. What a tensor group sums lies in one of its own, at the same place on all ranks: other
  // tensors may differ in size. NCCL can then read it directly (Communicator::sum_memory).
  struct Sizes {
    size_t scratch = 0, sums = 0;
    size_t total() const { return scratch + sums; }
  };

  // For the dry pass: hands out views without memory and records the peaks.
  Workspace() = default;
  // sums: memory for that stack; without memory it is allocated.
  Workspace(Device& device, const Sizes& sizes, TensorView sums = {})
      : scratch_(device, sizes.scratch), sums_(device, sums.data ? 0 : sizes.sums) {
    if (sums.data) sums_.memory = sums.data, sums_.capacity = sums.bytes();
  }

  TensorView take(DType dtype, const Shape& shape) { return scratch_.take(dtype, shape); }
  // For what all ranks of the tensor group take with the same shape, and sum.
  TensorView take_sum(DType dtype, const Shape& shape) { return sums_.take(dtype, shape); }
  size_t used() const { return scratch_.used; }
  Sizes peak() const { return {scratch_.peak, sums_.peak}; }

  // Gives back, at the end of a scope, the views taken in it.
  class Scope {
   public:
    explicit Scope(Workspace& workspace)
        : workspace_(workspace), marks_{workspace.scratch_.used, workspace.sums_.used} {}
    ~Scope() {
      workspace_.scratch_.used = marks_[0];
      workspace_.sums_.used = marks_[1];
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    std::array<size_t, 2> marks_;
  };

 private:
  struct Stack {
    static constexpr size_t alignment = 256;  // the most that a matrix library asks for

    Stack() = default;
    Stack(Device& device, size_t bytes)
        : owned(device, DType::uint8, {static_cast<int64_t>(bytes)}),
          memory(owned.view().data),
          capacity(bytes) {}

    TensorView take(DType dtype, const Shape& shape) {
      TensorView view{nullptr, dtype, shape};
      if (memory) {
        require(used + view.bytes() <= capacity, "the workspace is larger than the dry pass said");
        view.data = memory + used;
      }
      used += (view.bytes() + alignment - 1) / alignment * alignment;
      peak = std::max(peak, used);
      return view;
    }

    Tensor owned;
    std::byte* memory = nullptr;
    size_t capacity = 0, used = 0, peak = 0;
  };
  Stack scratch_, sums_;
};

}  // namespace maniple
