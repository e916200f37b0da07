// Weights without a checkpoint.
#pragma once

#include <layers/models/model.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>

#include <atomic>

namespace maniple {

// Fills allocated weights, in the formats that the scheme gives them. A value depends on (seed, name, global index) alone.
// Norms are 1, biases 0. `blocks` grows with each chunk, as a sign of progress.
void fill_with_random(Model& model, Ops& ops, const QuantScheme& scheme, uint64_t seed,
                      std::atomic<uint32_t>& blocks);

}  // namespace maniple
