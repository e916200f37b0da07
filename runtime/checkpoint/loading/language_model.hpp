// The language model inside a checkpoint that holds more: what a wrapper's config.json says of it, and which tensors are its own.
#pragma once

#include <layers/model_config.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/weight_index.hpp>
#include <runtime/checkpoint/wrapped_names.hpp>

#include <string_view>

namespace maniple {

// Merges text_config into the fields beside it: inner fields count before outer ones, except `architectures`, which of a known wrapper
// is what text_config.model_type calls for; end ids are those of both. An inner null counts where there is no outer field.
// Throws Error (input) on a known wrapper of a model type that is not known.
nlohmann::json language_model_config(nlohmann::json config, std::string_view where);

// Gives the tensors their plain names, takes out those of other parts (towers for images, layers that predict further tokens, indexers
// of sparse attention), and notes in index.left_out what these were. Throws Error (input) where two tensors get one name.
void keep_language_model(WeightIndex& index, const ModelConfig& config);

// read_index and keep_language_model.
WeightIndex read_language_model(const ModelFiles& files, const ModelConfig& config);

}  // namespace maniple
