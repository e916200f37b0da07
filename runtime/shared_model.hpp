// A model as all ranks know it: rank 0 alone reads its small files and its index, once.
#pragma once

#include <parallel/world.hpp>
#include <runtime/checkpoint/generation_config.hpp>
#include <runtime/checkpoint/model_config.hpp>
#include <runtime/checkpoint/weight_index.hpp>
#include <runtime/tokenizer/tokenizer.hpp>

namespace maniple {

struct SharedModel {
  std::optional<ModelFiles> files;  // rank 0
  ModelConfig config;
  GenerationConfig generation_config;
};

// Both are collective. When rank 0 refuses a file, all end by CollectiveError or SilentExit.
SharedModel share_model(World& world, const std::filesystem::path& path);
WeightIndex share_index(World& world, const SharedModel& model);

// Of tokenizer.json. Fails (input) also where there is none.
Tokenizer read_tokenizer(const ModelFiles& files);

}  // namespace maniple
