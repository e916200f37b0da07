// Picks the instance of a kernel for a tensor's type.
#pragma once

#include <device/primitives.hpp>
#include <kernels/tensor/dtype.hpp>

namespace maniple::cuda {

// Calls f(T{}) with T bf16, fp16 or float.
template <typename F>
void with_element_type(DType dtype, F f) {
  switch (dtype) {
    case DType::bf16:
      return f(device::bf16{});
    case DType::fp16:
      return f(device::fp16{});
    default:
      return f(float{});
  }
}

}  // namespace maniple::cuda
