// Picks the instance of an attention kernel on tensor cores.
#pragma once

#include <device/primitives.hpp>
#include <kernels/cuda/attention.hpp>

#include <type_traits>

namespace maniple::cuda {

// What softmax in base 2 multiplies scores by.
constexpr float log2_e = 1.4426950408889634f;

template <int number>
using Constant = std::integral_constant<int, number>;

// f(T{}, Constant<head size>{}), T being bf16 or fp16; false where there is no such instance.
template <typename F>
bool with_attention_instance(const AttentionArguments& arguments, F f) {
  const auto with_dims = [&](auto element) {
    switch (arguments.head_dim) {
      case 16:
        return f(element, Constant<16>{}), true;
      case 32:
        return f(element, Constant<32>{}), true;
      case 64:
        return f(element, Constant<64>{}), true;
      case 96:
        return f(element, Constant<96>{}), true;
      case 128:
        return f(element, Constant<128>{}), true;
      case 256:
        return f(element, Constant<256>{}), true;
      default:
        return false;
    }
  };
  switch (arguments.dtype) {
    case DType::bf16:
      return with_dims(device::bf16{});
    case DType::fp16:
      return with_dims(device::fp16{});
    default:
      return false;
  }
}

}  // namespace maniple::cuda
