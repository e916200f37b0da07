// Scratch memory of a forward pass: a stack in one allocation.
// A dry pass sizes it once, so a step allocates nothing.
#pragma once

#include <kernels/tensor/tensor.hpp>

#include <algorithm>

namespace maniple {

class Workspace {
 public:
  // For the dry pass: hands out views without memory and records the peak.
  Workspace() = default;
  Workspace(Device& device, size_t bytes)
      : memory_(device, DType::uint8, {static_cast<int64_t>(bytes)}), capacity_(bytes) {}

  TensorView take(DType dtype, const Shape& shape) {
    TensorView view{nullptr, dtype, shape};
    if (capacity_ > 0) {
      require(used_ + view.bytes() <= capacity_, "the workspace is larger than the dry pass said");
      view.data = memory_.view().data + used_;
    }
    used_ += (view.bytes() + alignment - 1) / alignment * alignment;
    peak_ = std::max(peak_, used_);
    return view;
  }
  size_t used() const { return used_; }
  size_t peak() const { return peak_; }

  // Gives back, at the end of a scope, the views taken in it.
  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), mark_(workspace.used_) {}
    ~Scope() { workspace_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    size_t mark_;
  };

 private:
  static constexpr size_t alignment = 256;  // the most that a matrix library asks for
  Tensor memory_;
  size_t capacity_ = 0;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace maniple
