// What steps of a model compute and move, counted from the weights that its layers declare: the numerators of MFU and MBU.
#pragma once

#include <layers/models/model.hpp>

#include <cstdint>
#include <vector>

namespace maniple {

// Of a rank's part, or of the whole model. Padding of weights and what a look-up reads count nothing.
struct ModelCost {
  uint64_t layer_parameters = 0;  // of the matrices that a token is multiplied with
  uint64_t head_parameters = 0;   // every sampled row is multiplied with them
  uint64_t weight_bytes = 0;      // these matrices, all experts, norms and biases
  uint64_t expert_bytes = 0;      // of experts alone
  double expert_share = 1;        // that a token uses
  uint64_t kv_bytes = 0;          // keys and values of a token in all layers
  uint64_t attention_flops = 0;   // of a token and a position that it sees, in all layers
  std::vector<int64_t> windows;   // of the layers (Model::windows), which are alike but for them
};

// type: of the weights; cache: of keys and values.
ModelCost dense_cost(Model& model, DType type, DType cache);

// What some steps do, in sums.
struct StepWork {
  uint64_t steps = 0;
  uint64_t tokens = 0;   // computed
  uint64_t sampled = 0;  // rows of logits
  uint64_t context = 0;  // tokens of its sequences that are in the KV cache before a step
  // Positions that, without windows, the computed tokens see, their own included: a sequence with p tokens in the cache and q computed
  // ones adds q p + q (q + 1) / 2.
  uint64_t attended = 0;
};

// A multiplication and an addition are two operations. Norms, activations, rotation and sampling are left out, as usual
// (Chowdhery et al., PaLM, arXiv 2204.02311, appendix B). A layer with a window counts at most so many positions a token.
double flops(const ModelCost& cost, const StepWork& work);
// Each step reads the weights once, of experts those that its tokens use if all are used alike; a sequence's keys
// and values are read once a step and written once.
double bytes_moved(const ModelCost& cost, const StepWork& work);

}  // namespace maniple
