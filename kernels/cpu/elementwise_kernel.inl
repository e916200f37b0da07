// The kernels of elementwise_kernel.hpp, compiled once for each instruction path. The last vector of a row is
// padded with neutral elements, so the result for an element never depends on its lane.
#pragma once

#include <kernels/cpu/elementwise_kernel.hpp>
#include <kernels/cpu/vector_lanes.hpp>

namespace maniple::cpu {
namespace {

// Calls f(first element, number of elements) for every vector; the number is a constant for all but the last.
template <typename F>
inline void for_vectors(int64_t count, F f) {
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(i, lanes);
  if (i < count) f(i, static_cast<int>(count - i));
}

template <typename Element>
inline Floats load_part(const Element* from, int count) {
  if (count == lanes) return load_elements(from);
  Element part[lanes] = {};
  for (int i = 0; i < count; ++i) part[i] = from[i];
  return load_elements(part);
}

template <typename Element>
inline void store_part(Element* to, Floats values, int count) {
  if (count == lanes) return store_elements(to, values);
  Element part[lanes];
  store_elements(part, values);
  for (int i = 0; i < count; ++i) to[i] = part[i];
}

// --- functions; polynomials of Moshier's Cephes library. Error below 2 ulp where the result is normal. ---

// 0 below -87, saturated above 88. A NaN stays one.
inline Floats exp_of(Floats x) {
  const Floats shifter = broadcast(0x1.8p23f);  // leaves the nearest integer in the low bits
  const Floats clamped = x > 88.0f ? broadcast(88.0f) : x;
  const Floats shifted = clamped * 0x1.715476p0f + shifter;
  const Floats n = shifted - shifter;
  const Floats r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  Floats p = broadcast(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const Floats power = (p * (r * r) + r) + 1.0f;
  const Words scale = ((Words)shifted << 23) + 0x3f800000u;
  return x < -87.0f ? Floats{} : power * (Floats)scale;
}

// Logarithm of positive normal numbers. Without fused operations: the noise has the same bits on every path.
inline Floats log_of(Floats x) {
  const Ints exponent = (Ints)((Words)x - 0x3f3504f3u) >> 23;  // of x / sqrt(1/2)
  const Floats f = (Floats)((Words)x - ((Words)exponent << 23)) - 1.0f;
  const Floats e = __builtin_convertvector(exponent, Floats);
  Floats p = broadcast(7.0376836292e-2f);
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const Floats square = f * f;
  const Floats rest = (f * square * p + e * -2.12194440e-4f) - square * 0.5f;
  return (f + rest) + e * 0.693359375f;
}

inline Words mix_bits(Words x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// noise_uniform() and gumbel_noise() of reference/noise.hpp.
// log(1 - w) is log(y) plus a correction for the rounding of y = fp32(1 - w).
inline Floats noise_uniform(Draw draw, Ints ids) {
  const Words bits = mix_bits(mix_bits((Words)ids ^ draw.first_key) + draw.second_key);
  const Floats w = (__builtin_convertvector((Ints)(bits >> 1), Floats) + 0.5f) * 0x1p-31f;
  return w < 0x1.fffffep-1f ? w : broadcast(0x1.fffffep-1f);
}
inline Floats gumbel_of(Floats w) {
  const Floats y = 1.0f - w;
  const Floats exponential = -(log_of(y) + ((1.0f - y) - w) / y);
  return -log_of(exponential);
}

// An upper bound of exp(x) for x in [-80, 1]: between powers of two it
// takes 1 + f for 2^f. Other x are clamped to that range; NaN counts as 1.
inline Floats above_exp(Floats x) {
  const Floats low = x < 1.0f ? x : broadcast(1.0f), inside = low > -80.0f ? low : broadcast(-80.0f);
  return (Floats) __builtin_convertvector((inside * 0x1.715476p0f + 127.0f) * 0x1p23f, Ints);
}

// --- rows ---

template <typename Element>
void rms_norm(const void* x, const float* weight, float epsilon, int64_t width, void* out) {
  const Element* const from = static_cast<const Element*>(x);
  Floats squares{};
  for_vectors(width, [&](int64_t i, int n) {
    const Floats values = load_part(from + i, n);
    squares = multiply_add(values, values, squares);
  });
  const float scale = 1.0f / __builtin_sqrtf(sum_lanes(squares) / static_cast<float>(width) + epsilon);
  for_vectors(width, [&](int64_t i, int n) {
    store_part(static_cast<Element*>(out) + i, load_part(from + i, n) * scale * load_part(weight + i, n), n);
  });
}

template <typename From, typename Element>
void gate_mul_from(GateActivation activation, const From* gate, const From* up, int64_t width, void* out) {
  const auto for_pairs = [&](auto gated) {
    for_vectors(width, [&](int64_t i, int n) {
      store_part(static_cast<Element*>(out) + i, gated(load_part(gate + i, n), load_part(up + i, n)), n);
    });
  };
  if (activation.limit == 0) return for_pairs([](Floats g, Floats u) { return g / (1.0f + exp_of(-g)) * u; });
  const Floats limit = broadcast(activation.limit);
  for_pairs([&](Floats gate_lanes, Floats up_lanes) {
    const Floats g = gate_lanes > limit ? limit : gate_lanes, below = up_lanes > limit ? limit : up_lanes,
                 u = below < -limit ? -limit : below;
    return g / (1.0f + exp_of(g * -activation.alpha)) * (u + 1.0f);
  });
}

template <typename Element>
void gate_mul(GateActivation activation, const void* gate, const void* up, int64_t width, void* out) {
  gate_mul_from<Element, Element>(activation, static_cast<const Element*>(gate),
                                  static_cast<const Element*>(up), width, out);
}

template <typename Element>
void add(const void* a, const void* b, int64_t count, void* out) {
  for_vectors(count, [&](int64_t i, int n) {
    const Floats sum =
        load_part(static_cast<const Element*>(a) + i, n) + load_part(static_cast<const Element*>(b) + i, n);
    store_part(static_cast<Element*>(out) + i, sum, n);
  });
}

inline Floats rounded_to(const float*, Floats values) { return values; }
inline Floats rounded_to(const uint16_t*, Floats values) {
  uint16_t elements[lanes];
  store_elements(elements, values);
  return load_elements(elements);
}

// Elements from i on, n of them; not rounded after the last addition. num_parts: a power of two.
template <int num_parts, typename Element>
inline Floats tree_of(const Element* const* parts, int64_t i, int n) {
  if constexpr (num_parts == 1)
    return load_part(parts[0] + i, n);
  else
    return rounded_to(parts[0], tree_of<num_parts / 2>(parts, i, n)) +
           rounded_to(parts[0], tree_of<num_parts / 2>(parts + num_parts / 2, i, n));
}

template <typename Element>
Floats tree_of(const Element* const* parts, int64_t num_parts, int64_t i, int n) {
  if (num_parts == 1) return tree_of<1>(parts, i, n);
  if (num_parts == 2) return tree_of<2>(parts, i, n);
  if (num_parts == 4) return tree_of<4>(parts, i, n);
  int64_t left = 2;
  while (2 * left < num_parts) left *= 2;
  return rounded_to(parts[0], tree_of(parts, left, i, n)) +
         rounded_to(parts[0], tree_of(parts + left, num_parts - left, i, n));
}

template <typename Element>
void add_tree(const void* const* parts, int64_t num_parts, int64_t count, void* out, void* copy) {
  const auto sum = [&](auto tree) {
    for_vectors(count, [&](int64_t i, int n) {
      const Floats total = tree(i, n);
      store_part(static_cast<Element*>(out) + i, total, n);
      if (copy) store_part(static_cast<Element*>(copy) + i, total, n);
    });
  };
  const auto* const typed = reinterpret_cast<const Element* const*>(parts);
  if (num_parts == 2) return sum([&](int64_t i, int n) { return tree_of<2>(typed, i, n); });
  if (num_parts == 4) return sum([&](int64_t i, int n) { return tree_of<4>(typed, i, n); });
  if (num_parts == 8) return sum([&](int64_t i, int n) { return tree_of<8>(typed, i, n); });
  sum([&](int64_t i, int n) { return tree_of(typed, num_parts, i, n); });
}

template <typename Element>
void add_floats(void* x, const float* b, int64_t count) {
  Element* const to = static_cast<Element*>(x);
  for_vectors(count,
              [&](int64_t i, int n) { store_part(to + i, load_part(to + i, n) + load_part(b + i, n), n); });
}

template <typename Element>
RowKernels row_kernels() {
  return {rms_norm<Element>, gate_mul<Element>, gate_mul_from<float, Element>,
          add<Element>,      add_tree<Element>, add_floats<Element>};
}

// --- sampling ---

constexpr float infinity = __builtin_inff();

inline bool any(Ints mask) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_epi8((__m256i)mask) != 0;
#else
  return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
#endif
}

inline Ints iota() {
  Ints ids;
  for (int i = 0; i < lanes; ++i) ids[i] = i;
  return ids;
}

// Missing elements and NaN become -inf.
inline Floats load_logits(const float* from, int count) {
  Floats values;
  if (count == lanes) {
    values = load<Floats>(from);
  } else {
    values = broadcast(-infinity);
    for (int i = 0; i < count; ++i) values[i] = from[i];
  }
  return values == values ? values : broadcast(-infinity);
}

// Missing ids are larger than any other: they lose every tie.
inline Ints load_ids(const int32_t* ids, int32_t first, int64_t begin, int count) {
  constexpr int32_t none = 0x7fffffff;
  Ints values = ids ? Ints{} : iota() + (first + static_cast<int32_t>(begin));
  if (ids && count == lanes) return load<Ints>(ids + begin);
  for (int i = 0; i < lanes; ++i) values[i] = i >= count ? none : ids ? ids[begin + i] : values[i];
  return values;
}

struct BestLanes {
  Floats score = broadcast(-infinity);
  Ints id = Ints{} + 0x7fffffff;

  void offer(Floats scores, Ints ids) {
    const Ints wins = (scores > score) | ((scores == score) & (ids < id));
    score = wins ? scores : score;
    id = wins ? ids : id;
  }
};

// Lanes whose score + noise may reach `lead`: noise = -log(E) needs
// E <= exp(score - lead), and w <= E. The margin covers all rounding.
inline Ints may_win(Floats scores, Floats lead, Floats w) {
  const Floats margin = (lead < 0.0f ? -lead : lead) * 0x1p-20f + 1e-4f;
  return w <= above_exp(scores - lead + margin);
}

int32_t best(const float* logits, const int32_t* ids, int32_t first_id, int64_t count, Draw draw,
             float* score) {
  BestLanes lead;
  for_vectors(count, [&](int64_t i, int n) {
    Floats scores = load_logits(logits + i, n);
    const Ints these =
        n == lanes && !ids ? iota() + (first_id + static_cast<int32_t>(i)) : load_ids(ids, first_id, i, n);
    if (draw.temperature > 0) {
      scores /= draw.temperature;
      const Floats w = noise_uniform(draw, these);
      if (!any(may_win(scores, lead.score, w))) return;
      scores += gumbel_of(w);
    }
    lead.offer(scores, these);
  });
  *score = lead.score[0];
  int32_t id = lead.id[0];
  for (int lane = 1; lane < lanes; ++lane) {
    if (lead.score[lane] < *score || (lead.score[lane] == *score && lead.id[lane] > id)) continue;
    *score = lead.score[lane];
    id = lead.id[lane];
  }
  return id;
}

bool all_finite(const float* logits, int64_t count) {
  Floats differences{};  // 0 of finite numbers, NaN of others
  for_vectors(count, [&](int64_t i, int n) {
    const Floats values = load_part(logits + i, n);
    differences += values - values;
  });
  return !any(differences != differences);
}

float maximum(const float* logits, int64_t count) {
  Floats largest = broadcast(-infinity);
  for_vectors(count, [&](int64_t i, int n) {
    const Floats values = load_logits(logits + i, n);
    largest = values > largest ? values : largest;
  });
  return max_lanes(largest);
}

int64_t at_least(const float* logits, int64_t count, float floor, int32_t* places) {
  int64_t found = 0;
  for_vectors(count, [&](int64_t i, int n) {
    const Ints reached = load_logits(logits + i, n) >= floor;
    if (!any(reached)) return;
    int32_t lane[lanes];
    store(lane, reached);
    for (int l = 0; l < n; ++l) {
      places[found] = static_cast<int32_t>(i) + l;
      found -= lane[l];  // -1 where it holds
    }
  });
  return found;
}

// exp(values - maximum), where the difference of equal infinities is 0.
inline Floats exp_below(Floats values, float maximum) {
  return exp_of(values == maximum ? Floats{} : values - maximum);
}

float exp_sum(const float* logits, int64_t count, float maximum) {
  Floats sums{};
  for_vectors(count, [&](int64_t i, int n) {
    const Floats exps = exp_below(load_logits(logits + i, n), maximum);
    sums += iota() < n ? exps : Floats{};
  });
  return sum_lanes(sums);
}

void shares(const float* logits, int64_t count, float temperature, float maximum, float* out) {
  for_vectors(count, [&](int64_t i, int n) {
    store_part(out + i, exp_below(load_logits(logits + i, n) / temperature, maximum / temperature), n);
  });
}

SamplingKernels sampling_kernels() { return {all_finite, best, maximum, at_least, exp_sum, shares}; }

}  // namespace
}  // namespace maniple::cpu
