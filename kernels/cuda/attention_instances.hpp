// Picks the instance of an attention kernel on tensor cores.
#pragma once

#include <device/primitives.hpp>
#include <kernels/cuda/attention.hpp>

#include <type_traits>
#include <utility>

namespace maniple::cuda {

// The factor of scores for a softmax in base 2.
constexpr float log2_e = 1.4426950408889634f;
constexpr float ln_2 = 0.6931471805599453f;

template <int number>
using Constant = std::integral_constant<int, number>;

// Calls f(T{}, Kept{}, Constant<head size>{}) with T bf16 or fp16, and Kept, the type in the cache, T or Float8. Returns false
// where there is no such instance.
template <typename F>
bool with_attention_instance(const AttentionArguments& arguments, F f) {
  const auto with_kept = [&](auto element, auto dims) {
    arguments.codes ? f(element, Float8{}, dims) : f(element, element, dims);
    return true;
  };
  const auto with_dims = [&]<int... dims>(auto element, std::integer_sequence<int, dims...>) {
    return ((arguments.head_dim == dims && with_kept(element, Constant<dims>{})) || ...);
  };
  constexpr std::integer_sequence<int, 16, 32, 64, 96, 128, 256> dims;
  switch (arguments.dtype) {
    case DType::bf16:
      return with_dims(device::bf16{}, dims);
    case DType::fp16:
      return with_dims(device::fp16{}, dims);
    default:
      return false;
  }
}

}  // namespace maniple::cuda
