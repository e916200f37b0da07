// Reads and checks a model's config.json: every ModelConfig that it returns describes a model that the
// decoder computes exactly. Accepted: the architectures of its table (Qwen3, Llama, Glm4Moe, ...), in the field names of Hugging Face transformers 4 and 5.
#pragma once

#include <layers/model_config.hpp>
#include <runtime/checkpoint/model_files.hpp>

#include <string_view>

namespace maniple {

// where: the file's name for messages. Fails with ExitCode::input, naming field, value and what is supported,
// on malformed JSON, missing or impossible sizes, and every setting known to change the arithmetic in a way
// that the decoder does not compute.
ModelConfig parse_model_config(std::string_view json, std::string_view where);
ModelConfig read_model_config(const ModelFiles& files);

}  // namespace maniple
