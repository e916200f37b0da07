// Scales for an FP8 KV cache, which a checkpoint may hold beside its weights, under the names of several publishers.
#pragma once

#include <layers/kv_scales.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>

namespace maniple {

bool is_kv_scale(std::string_view tensor);

// Of these layers of the model, by layer; empty where the checkpoint has none and its config asks for none. Throws Error
// (input) on a scale that is missing, or no positive number.
std::vector<KvScales> kv_scales_of(const WeightIndex& index, const QuantScheme& scheme,
                                   const IndexRange& layers);

}  // namespace maniple
