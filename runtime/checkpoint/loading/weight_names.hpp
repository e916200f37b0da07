// The tensors that a model wants and those that a checkpoint holds, by name.
#pragma once

#include <layers/models/model.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>

namespace maniple {

// make_model's, with its pieces named as they are stored. A checkpoint may hold the tensors of a merged layer, or of all experts of a
// layer, as one fused tensor: where it has only that one, the pieces of a parameter are pieces of it.
std::unique_ptr<Model> make_stored_model(const ModelConfig& config, const RankPlan& plan,
                                         const WeightIndex& index);
// The same for a model that is there.
void name_as_stored(Model& model, const WeightIndex& index);

// whole: the stored model of RankPlan{}. Throws Error (input), naming missing, extra or misshapen tensors of the checkpoint, and
// parts of one product that are quantised in different ways.
void check_names(Model& whole, const WeightIndex& index, const QuantScheme& scheme);

}  // namespace maniple
