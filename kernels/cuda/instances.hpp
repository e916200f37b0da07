// Picks the instance of a kernel for the types of tensors and for sizes.
#pragma once

#include <device/primitives.hpp>
#include <kernels/tensor/dtype.hpp>

#include <type_traits>

namespace maniple::cuda {

template <int number>
using Constant = std::integral_constant<int, number>;

// Calls f(Constant<number>{}) if the number is one of `numbers`. Returns whether it is.
template <int... numbers, typename F>
bool with_constant(int number, F f) {
  return ((number == numbers && (f(Constant<numbers>{}), true)) || ...);
}

// Calls f(T{}) with T bf16 or fp16. Returns false and does nothing for other types.
template <typename F>
bool with_tensor_core_type(DType dtype, F f) {
  if (dtype == DType::bf16) return f(device::bf16{}), true;
  if (dtype == DType::fp16) return f(device::fp16{}), true;
  return false;
}

// Calls f(T{}) with T bf16, fp16 or float.
template <typename F>
void with_element_type(DType dtype, F f) {
  if (!with_tensor_core_type(dtype, f)) f(float{});
}

// Calls f(T{}, Other{}), Other being T or float. other: dtype or fp32.
template <typename F>
void with_element_types(DType dtype, DType other, F f) {
  with_element_type(dtype, [&](auto element) { other == dtype ? f(element, element) : f(element, float{}); });
}

}  // namespace maniple::cuda
