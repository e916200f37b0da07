// Attention over some splits of a context, for four dimensions of a row.
#pragma once

#include <kernels/cuda/attention_instances.hpp>

namespace maniple::cuda {

struct alignas(16) Four {
  float values[4];
};
struct Partial {
  float maximum;
  float total;
  Four sum;
};
__device__ inline Partial merged(const Partial& a, const Partial& b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  const float shrink_a = device::fast_exp2(a.maximum - maximum),
              shrink_b = device::fast_exp2(b.maximum - maximum);
  Partial both{maximum, a.total * shrink_a + b.total * shrink_b, {}};
  for (int i = 0; i < 4; ++i) both.sum.values[i] = a.sum.values[i] * shrink_a + b.sum.values[i] * shrink_b;
  return both;
}

// Into a row of partials (AttentionCall): its maximum is one of natural exponents.
__device__ inline void store_partial(float* row, int dims, int vector, const Partial& partial) {
  for (int i = 0; i < 4; ++i) row[4 * vector + i] = partial.sum.values[i];
  if (vector > 0) return;
  row[dims] = partial.maximum * ln_2;
  row[dims + 1] = partial.total;
}

}  // namespace maniple::cuda
