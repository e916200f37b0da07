// Picks the instance of an attention kernel on tensor cores.
#pragma once

#include <kernels/cuda/attention.hpp>
#include <kernels/cuda/instances.hpp>

namespace maniple::cuda {

// The factor of scores for a softmax in base 2.
constexpr float log2_e = 1.4426950408889634f;
constexpr float ln_2 = 0.6931471805599453f;

// Calls f(T{}, Kept{}, Constant<head size>{}) with T bf16 or fp16, and Kept, the type in the cache, T or Float8. Returns false
// where there is no such instance.
template <typename F>
bool with_attention_instance(const AttentionArguments& arguments, F f) {
  bool found = false;
  with_tensor_core_type(arguments.dtype, [&](auto element) {
    found = with_constant<16, 32, 64, 96, 128, 256>(arguments.head_dim, [&](auto dims) {
      arguments.codes ? f(element, Float8{}, dims) : f(element, element, dims);
    });
  });
  return found;
}

}  // namespace maniple::cuda
