// What all ranks know of a model: rank 0 reads its small files and its index once, and broadcasts them.
#pragma once

#include <parallel/world.hpp>
#include <runtime/checkpoint/generation_config.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>
#include <runtime/checkpoint/weight_index.hpp>
#include <runtime/engine_options.hpp>
#include <runtime/tokenizer/tokenizer.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

struct SharedModel {
  std::optional<ModelFiles> files;   // rank 0, as the next two
  std::optional<WeightIndex> index;  // where share_model had to read it
  std::vector<std::string> warnings;
  ModelConfig config;
  std::shared_ptr<const QuantScheme> scheme;  // how its weights are stored
  GenerationConfig generation_config;
};

// Both are collective. If rank 0 refuses a file, all ranks throw CollectiveError or SilentExit. options.quantize: a model in
// floating point, while it is loaded; others are refused (usage).
SharedModel share_model(World& world, const EngineOptions& options);
WeightIndex share_index(World& world, const SharedModel& model);

// tokenizer.json, else tiktoken.model.
bool has_tokenizer(const ModelFiles& files);
// Throws Error (input) also if there is none.
Tokenizer read_tokenizer(const ModelFiles& files);

}  // namespace maniple
