// The tensors that a model wants and those that a checkpoint holds, by name.
#pragma once

#include <layers/models/model.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>

namespace maniple {

// A checkpoint may store the tensors of a merged layer, or of all experts of a layer, as one fused tensor. Where it
// has only that one, the pieces of a parameter become pieces of it.
void name_as_stored(Model& model, const WeightIndex& index);

// The same. Throws Error (input), naming missing, extra or misshapen tensors of the checkpoint, and parts of one product that
// are quantised in different ways.
void check_names(Model& model, const WeightIndex& index, const QuantScheme& scheme);

}  // namespace maniple
