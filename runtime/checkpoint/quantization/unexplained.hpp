// What config.json says of quantisation, and quantised checkpoints of which it says nothing.
#pragma once

#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/weight_index.hpp>

#include <string>

namespace maniple {

// The quantization_config of config.json, in the order of its fields, which counts in some: that of text_config before the one beside it.
// Empty where there is none, or an empty one.
std::string quantization_in(const nlohmann::ordered_json& config);

// config.json with the settings that older programs left in a file beside it, if config.json has none and the tensors are quantised:
// quantize_config.json (AutoGPTQ) or quant_config.json (AutoAWQ). Else the text as it is.
std::string with_settings_beside(const ModelFiles& files, std::string config);

// Fails (input) where tensors look quantised: what they look like, and what to add to config.json.
void refuse_unexplained(const WeightIndex& index);

}  // namespace maniple
