// Owns device memory. Move-only; the Device must outlive it.
#pragma once

#include <kernels/tensor/device.hpp>
#include <kernels/tensor/tensor_view.hpp>

#include <utility>

namespace maniple {

class Tensor {
 public:
  Tensor() = default;
  Tensor(Device& device, DType dtype, const Shape& shape) : device_(&device), view_{nullptr, dtype, shape} {
    if (view_.bytes() > 0) view_.data = device.allocate(view_.bytes());
  }
  Tensor(Tensor&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), view_(std::exchange(other.view_, {})) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(view_, other.view_);
    return *this;
  }
  ~Tensor() {
    if (view_.data) device_->release(view_.data, view_.bytes());
  }

  TensorView view() { return view_; }
  ConstTensorView view() const { return view_; }
  operator TensorView() { return view_; }
  operator ConstTensorView() const { return view_; }
  const Shape& shape() const { return view_.shape; }
  DType dtype() const { return view_.dtype; }
  explicit operator bool() const { return view_.data != nullptr; }

 private:
  Device* device_ = nullptr;
  TensorView view_;
};

// Zeros, on every device.
inline Tensor zeroed(Device& device, DType dtype, const Shape& shape) {
  Tensor tensor(device, dtype, shape);
  device.clear(tensor.view().data, tensor.view().bytes());
  return tensor;
}

}  // namespace maniple
