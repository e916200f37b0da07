// Models that are known and not read.
#pragma once

#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/model_files.hpp>

#include <string_view>

namespace maniple {

// Throws Error (input) with the model's name and what maniple lacks for it. supported: the architectures that are read.
void refuse_known_model(const JsonFields& config, std::string_view supported);

// Throws Error (input) on a model in the layout that Mistral publishes beside that of Hugging Face: params.json and consolidated weights.
void refuse_mistral_layout(const ModelFiles& files);

}  // namespace maniple
