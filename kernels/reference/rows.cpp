#include <kernels/reference/rows.hpp>

#include <algorithm>
#include <cmath>

namespace maniple::reference {

namespace {

// Calls f with the first element of the type that the view has.
template <typename View, typename F>
void with_elements(View view, int64_t begin, const F& f) {
  switch (view.dtype) {
    case DType::fp32:
      return f(view.template as<float>() + begin);
    case DType::bf16:
      return f(view.template as<BFloat16>() + begin);
    case DType::fp16:
      return f(view.template as<Float16>() + begin);
    case DType::fp8:
      return f(view.template as<Float8>() + begin);
    case DType::e8m0:
      return f(view.template as<PowerScale>() + begin);
    default:
      require(false, "not a floating-point tensor");
  }
}

}  // namespace

Floats read(ConstTensorView view, int64_t begin, int64_t count) {
  Floats values(static_cast<size_t>(count));
  with_elements(view, begin, [&](const auto* from) {
    for (float& value : values) value = static_cast<float>(*from++);
  });
  return values;
}

void write(TensorView view, int64_t begin, std::span<const float> values) {
  with_elements(view, begin, [&]<typename T>(T* to) {
    for (const float value : values) *to++ = T(value);
  });
}

float dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t lanes = 16;
  float sums[lanes] = {};
  const int64_t whole = count - count % lanes;
  for (int64_t i = 0; i < whole; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (int64_t i = whole; i < count; ++i) sums[i - whole] += a[i] * b[i];
  return tree_sum(sums);
}

float gated(GateActivation activation, float gate, float up) {
  const float limit = activation.limit;
  if (limit == 0) return gate / (1.0f + std::exp(-gate)) * up;
  const float g = gate > limit ? limit : gate, u = up > limit ? limit : up < -limit ? -limit : up;
  return g / (1.0f + std::exp(-activation.alpha * g)) * (u + 1.0f);
}

float tree_sum(std::span<float> parts) {
  for (size_t stride = 1; stride < parts.size(); stride *= 2)
    for (size_t i = 0; i + stride < parts.size(); i += 2 * stride) parts[i] += parts[i + stride];
  return parts.empty() ? 0.0f : parts[0];
}

void add_gated(ConstTensorView x, ConstTensorView gate, IndexRange tokens, TensorView sum) {
  const int64_t width = x.shape[1];
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const float factor = 1.0F / (1.0F + std::exp(-gate.as<float>()[t]));
    const float* from = x.as<float>() + t * width;
    float* to = sum.as<float>() + t * width;
    for (int64_t i = 0; i < width; ++i) to[i] += factor * from[i];
  }
}

void head_squares(ConstTensorView qkv, const HeadLayout& heads, IndexRange tokens, TensorView out) {
  const int64_t dim = heads.key_dim, normed = heads.query_heads + heads.kv_heads;
  for (int64_t t = tokens.begin; t < tokens.end; ++t)
    for (int64_t h = 0; h < normed; ++h) {
      const Floats head = read(qkv, t * heads.qkv_width() + h * dim, dim);
      out.as<float>()[t * normed + h] = dot(head.data(), head.data(), dim);
    }
}

}  // namespace maniple::reference
