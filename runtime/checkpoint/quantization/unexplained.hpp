// Quantised checkpoints whose config.json does not say so.
#pragma once

#include <runtime/checkpoint/weight_index.hpp>

#include <string>

namespace maniple {

// config.json with the settings that older programs left in a file beside it, if config.json has none and the tensors are quantised:
// quantize_config.json (AutoGPTQ) or quant_config.json (AutoAWQ). Else the text as it is.
std::string with_settings_beside(const ModelFiles& files, std::string config);

// Fails (input) where tensors look quantised: what they look like, and what to add to config.json.
void refuse_unexplained(const WeightIndex& index);

}  // namespace maniple
