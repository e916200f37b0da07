// Small tensors of a quantised checkpoint that say how the others are read: the first rank reads them with the index, and
// every rank knows their values.
#pragma once

#include <layers/model_config.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>
#include <runtime/checkpoint/weight_index.hpp>

namespace maniple {

// Reads scales of the KV cache; of a quantised model also what the scheme asks for, scalars, and biases that the model has
// no place for.
void read_known_tensors(WeightIndex& index, const ModelConfig& config, const QuantScheme& scheme);

}  // namespace maniple
