// Norm, rotation and store of one token, written once and compiled for each instruction path.
#include <kernels/cpu/e4m3_lanes.inl>
#include <kernels/cpu/position_group.hpp>
#include <kernels/cpu/rotary_kernel.hpp>
#include <kernels/cpu/vector_lanes.hpp>

namespace maniple::cpu {
namespace {

inline float inverse_of(const float* head, const RotaryToken& token) {
  Floats squares{};
  for (int d = 0; d < token.head_dim; d += lanes)
    squares = multiply_add(load<Floats>(head + d), load<Floats>(head + d), squares);
  const float mean = sum_lanes(squares) / static_cast<float>(token.norm_size);
  return 1.0f / __builtin_sqrtf(mean + token.epsilon);
}

inline void normalise(float* head, const float* weight, float inverse, const RotaryToken& token) {
  if (inverse < 0) inverse = inverse_of(head, token);
  for (int d = 0; d < token.head_dim; d += lanes)
    store(head + d, load<Floats>(head + d) * inverse * load<Floats>(weight + d));
}

// The first pairs (a, b) of the two halves: each becomes (a cos - b sin, b cos + a sin); no fused operation, so vectors and the
// tail agree.
inline void rotate(float* first, const float* cosines, int half, int pairs) {
  float* second = first + half;
  const float* sines = cosines + pairs;
  int d = 0;
  for (; d + lanes <= pairs; d += lanes) {
    const Floats a = load<Floats>(first + d), b = load<Floats>(second + d);
    const Floats cosine = load<Floats>(cosines + d), sine = load<Floats>(sines + d);
    store(first + d, a * cosine - b * sine);
    store(second + d, b * cosine + a * sine);
  }
  for (; d < pairs; ++d) {
    const float a = first[d], b = second[d];
    first[d] = a * cosines[d] - b * sines[d];
    second[d] = b * cosines[d] + a * sines[d];
  }
}

template <typename Element>
inline void rotate_head(const RotaryToken& token, const Element* from, const float* norm, float inverse,
                        Element* to) {
  float head[max_rotary_head_dim];
  for (int d = 0; d < token.head_dim; d += lanes) store(head + d, load_elements(from + d));
  if (norm) normalise(head, norm, inverse, token);
  rotate(head, token.cos_sin, token.head_dim / 2, token.rotary_width / 2);
  for (int d = 0; d < token.head_dim; d += lanes) store_elements(to + d, load<Floats>(head + d));
}

// The other positions of a word of values may belong to another thread: elements are stored one by one.
template <typename Element>
inline void store_key_and_value(const Element* key, const Element* value, int head_dim, void* keys,
                                void* values) {
  constexpr int in_word = 4 / sizeof(Element);
  for (int d = 0; d < head_dim; d += in_word)
    __builtin_memcpy(static_cast<char*>(keys) + d / in_word * position_group * 4, key + d, 4);
  for (int d = 0; d < head_dim; ++d) static_cast<Element*>(values)[d * in_word] = value[d];
}

// The same rounded to e4m3, four elements in a word in the order of CpuPages.
template <typename Element>
inline void store_codes(const RotaryToken& token, const Element* key, const Element* value, void* keys,
                        void* values) {
  uint32_t codes[max_rotary_head_dim];
  const auto round = [&](const Element* from, float scale) {
    for (int d = 0; d < token.head_dim; d += lanes)
      store(codes + d, e4m3_codes(load_elements(from + d) / scale));
  };
  round(key, token.key_scale);
  for (int d = 0; d < token.head_dim; d += 4) {
    const uint32_t word = codes[d] | codes[d + 1] << 16 | codes[d + 2] << 8 | codes[d + 3] << 24;
    __builtin_memcpy(static_cast<char*>(keys) + d / 4 * position_group * 4, &word, 4);
  }
  round(value, token.value_scale);
  for (int d = 0; d < token.head_dim; ++d)
    static_cast<uint8_t*>(values)[d * 4] = static_cast<uint8_t>(codes[d]);
}

template <typename Element>
void rotate_token(const RotaryToken& token) {
  const Element* head = static_cast<const Element*>(token.qkv);
  Element* query = static_cast<Element*>(token.queries);
  const auto weight_of = [&](const float* weights, float inverse, int h) {
    return weights && inverse >= 0 ? weights + h * token.head_dim : weights;
  };
  for (int h = 0; h < token.query_heads; ++h, head += token.head_dim, query += token.head_dim)
    rotate_head(token, head, weight_of(token.query_norm, token.query_inverse, h), token.query_inverse, query);
  const Element* value = head + token.kv_heads * token.head_dim;
  for (int h = 0; h < token.kv_heads; ++h, head += token.head_dim, value += token.head_dim) {
    Element key[max_rotary_head_dim];
    rotate_head(token, head, weight_of(token.key_norm, token.key_inverse, h), token.key_inverse, key);
    char* const keys = static_cast<char*>(token.keys) + h * token.head_bytes;
    char* const values = static_cast<char*>(token.values) + h * token.head_bytes;
    if (token.stores_e4m3)
      store_codes(token, key, value, keys, values);
    else
      store_key_and_value(key, value, token.head_dim, keys, values);
  }
}

inline RotaryKernel rotary_kernel(bool bf16) { return bf16 ? rotate_token<uint16_t> : rotate_token<float>; }

}  // namespace
}  // namespace maniple::cpu
