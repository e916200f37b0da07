#include <runtime/checkpoint/loading/kv_scales.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace maniple {
namespace {

constexpr std::string_view attention = ".self_attn.";

// Behind the name of a layer's attention; the first that is there counts. kv_scale is of both.
constexpr std::string_view names_for_keys[] = {"k_scale", "attn.k_scale", "k_proj.k_scale",
                                               "k_proj.output_scale", "kv_scale"};
constexpr std::string_view names_for_values[] = {"v_scale", "attn.v_scale", "v_proj.v_scale",
                                                 "v_proj.output_scale", "kv_scale"};

float scale_in(const std::string& name, const IndexedTensor& tensor) {
  if (!is_scalar(tensor.info) || !is_floating(tensor.info))
    refuse_files(
        "tensor {} is stored as {} of shape [{}]; a scale of the KV cache is one number in "
        "BF16, F16 or F32",
        name, tensor.info.stored_type, fmt::join(tensor.info.shape, ", "));
  const float scale = scalar_of(tensor);
  if (std::isfinite(scale) && scale <= 0)
    throw Error(ExitCode::input, fmt::format("tensor {} holds {}", name, scale),
                "keys and values of the KV cache are divided by it",
                "download the model's files again, or `kv_cache_dtype` bf16");
  return scale;
}

float scale_of(const WeightIndex& index, int64_t layer, std::span<const std::string_view> names) {
  const std::string prefix = fmt::format("model.layers.{}{}", layer, attention);
  for (const std::string_view name : names)
    if (const auto found = index.tensors.find(prefix + std::string(name)); found != index.tensors.end())
      return scale_in(found->first, found->second);
  throw Error(ExitCode::input,
              fmt::format("the checkpoint lacks a scale of the KV cache: {}{}", prefix, names[0]),
              "config.json (kv_cache_scheme) or its other layers say that there is one",
              "get all files of one model, or `kv_cache_dtype` bf16");
}

}  // namespace

bool is_kv_scale(std::string_view tensor) {
  const size_t at = tensor.find(attention);
  if (at == tensor.npos) return false;
  const std::string_view name = tensor.substr(at + attention.size());
  return std::ranges::count(names_for_keys, name) + std::ranges::count(names_for_values, name) > 0;
}

std::vector<KvScales> kv_scales_of(const WeightIndex& index, const QuantScheme& scheme,
                                   const IndexRange& layers) {
  std::vector<KvScales> scales;
  const auto holds_scale = [](const auto& tensor) { return is_kv_scale(tensor.first); };
  if (!scheme.keeps_fp8_kv() && std::ranges::none_of(index.tensors, holds_scale)) return scales;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer)
    scales.push_back({scale_of(index, layer, names_for_keys), scale_of(index, layer, names_for_values)});
  return scales;
}

}  // namespace maniple
