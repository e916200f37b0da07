// Rounds activations to codes, by the rules of weight.hpp. Every instruction path gives the same bits.

#include <kernels/cpu/e4m3_lanes.inl>
#include <kernels/cpu/matmul_kernel.hpp>

namespace maniple::cpu {
namespace {

// Calls f(vector, values in it, first element) along x; the last vector is padded with zeros.
template <typename Element, typename F>
void for_vectors(const void* from, int64_t count, F f) {
  const auto* x = static_cast<const Element*>(from);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(load_elements(x + i), lanes, i);
  if (i == count) return;
  Element rest[lanes] = {};
  __builtin_memcpy(rest, x + i, static_cast<size_t>(count - i) * sizeof(Element));
  f(load_elements(rest), static_cast<int>(count - i), i);
}

// As integers magnitudes are in the order of the numbers, with every NaN above infinity.
template <typename Element>
float abs_maximum(const void* x, int64_t count) {
  Ints largest{};
  for_vectors<Element>(x, count, [&](Floats values, int, int64_t) {
    const Ints magnitude = (Ints)values & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  });
  int32_t most = 0;
  for (int i = 0; i < lanes; ++i) most = largest[i] > most ? largest[i] : most;
  float value;
  __builtin_memcpy(&value, &most, 4);
  return value;
}

// The nearest multiple of a power of two, ties to even: `shifter` is 1.5 * 2^23 of them.
inline Floats nearest(Floats values, float shifter) { return (values + shifter) - shifter; }

template <typename Element>
int32_t round_int8(const void* x, int64_t count, float scale, int8_t* codes) {
  using Bytes [[gnu::vector_size(lanes)]] = int8_t;
  Ints sums{};
  for_vectors<Element>(x, count, [&](Floats values, int in_vector, int64_t first) {
    const Ints rounded = __builtin_convertvector(nearest(clamped(values / scale, 127.0f), 0x1.8p23f), Ints);
    const Bytes bytes = __builtin_convertvector(rounded, Bytes);
    __builtin_memcpy(codes + first, &bytes, static_cast<size_t>(in_vector));
    sums += rounded;
  });
  int32_t sum = 0;
  for (int i = 0; i < lanes; ++i) sum += sums[i];
  return sum;
}

template <typename Element>
void round_e4m3(const void* x, int64_t count, float scale, void* to) {
  for_vectors<Element>(x, count, [&](Floats values, int in_vector, int64_t first) {
    const Floats rounded = e4m3_values(e4m3_codes(values / scale), 0);
    Element elements[lanes];
    store_elements(elements, rounded);
    __builtin_memcpy(static_cast<Element*>(to) + first, elements,
                     static_cast<size_t>(in_vector) * sizeof(Element));
  });
}

template <typename Element>
InputKernels input_kernels_of() {
  return {abs_maximum<Element>, round_int8<Element>, round_e4m3<Element>};
}
inline InputKernels input_kernels(bool bf16) {
  return bf16 ? input_kernels_of<uint16_t>() : input_kernels_of<float>();
}

}  // namespace
}  // namespace maniple::cpu
