// Fills a model's parameters: boxes of stored tensors travel from the ranks that read them to those that need
// them, which pack them and let them go.
#pragma once

#include <layers/models/model.hpp>
#include <parallel/communicator.hpp>
#include <parallel/transport.hpp>
#include <runtime/checkpoint/read_plan.hpp>

#include <atomic>

namespace maniple {

// A checkpoint may keep the tensors of a merged layer fused: check_names, needs_of and load_weights make the
// model's pieces parts of what the index holds.

// Throws Error (input) naming missing, extra or misshapen tensors of the checkpoint.
void check_names(Model& model, const WeightIndex& index);

// Where packed weights travel between replicas and not stored bytes: the replica that reads each stored
// tensor, by name. All that goes into one parameter is read by one replica, and about as much by each. whole:
// the model of RankPlan{}, past check_names.
using Readers = std::map<std::string, int>;
Readers readers_of(Model& whole, int replicas);

// The stored boxes behind the model's parameters on its rank; with readers, those that `replica` reads.
WeightNeeds needs_of(Model& model, const WeightIndex& index, const Readers& readers = {}, int replica = 0);

// What the weights of this rank will take, before anything is loaded; packing may add a little.
size_t weight_bytes(Model& model, DType weight_type);

// Makes the weights, without values; weight_type: bf16, fp16 or fp32. Returns their bytes.
size_t make_weights(Model& model, Ops& ops, DType weight_type);

// Fills weights that are made. A value depends on (seed, name, global index) alone. Norms are 1, biases 0.
// `blocks` grows with each slice that is in its place.
void fill_with_random(Model& model, Ops& ops, uint64_t seed, std::atomic<uint32_t>& blocks);

// Fills weights that are made from a checkpoint. Collective over the ranks of `replicas`, which are those of
// `transport`, by replica and member. What this rank fails to read or store it throws after it has served the
// others; then all must be told.
void load_weights(Model& model, Ops& ops, const WeightIndex& index, std::span<const ReadRound> plan,
                  Transport& transport, std::span<const std::vector<int>> replicas,
                  std::atomic<uint32_t>& blocks);

// Gives every replica what the others have loaded. Collective over `alike`: the same member in all replicas.
void share_weights(Model& model, Communicator& alike, const Readers& readers, std::atomic<uint32_t>& blocks);

}  // namespace maniple
