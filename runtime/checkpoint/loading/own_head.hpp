// Models whose config.json ties lm_head to the embedding, though the checkpoint stores both.
#pragma once

#include <layers/model_config.hpp>
#include <runtime/checkpoint/weight_index.hpp>

#include <string>

namespace maniple {

// As transformers 5: a stored lm_head of other numbers, type or shape, or a quantised one, is not tied; where only lm_head is stored, it
// is the embedding too. Changes the two accordingly. Returns a sentence for users, empty where all is as config.json says. Reads the
// two tensors as far as they are the same.
std::string settle_head(ModelConfig& config, WeightIndex& index);

}  // namespace maniple
