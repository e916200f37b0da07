// What a model's weights take as a scheme stores them, known before anything is loaded.
#pragma once

#include <layers/models/cost.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>

#include <cstddef>

namespace maniple {

// The bytes of this rank's weights as config.json describes them, before anything is loaded; packing may add a little.
size_t weight_bytes(Model& model, DType weight_type, const QuantScheme& scheme);

// The cost of a model whose weights are read as the scheme stores them. cache: the type of keys and values.
ModelCost stored_cost(Model& model, DType weight_type, const QuantScheme& scheme, DType cache);

}  // namespace maniple
