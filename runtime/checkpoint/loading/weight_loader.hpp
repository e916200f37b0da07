// Fills a model's parameters: boxes of stored tensors travel from the ranks that read them to the ranks that
// need them, which pack them.
#pragma once

#include <layers/models/model.hpp>
#include <parallel/communicator.hpp>
#include <parallel/transport.hpp>
#include <runtime/checkpoint/loading/weight_names.hpp>
#include <runtime/checkpoint/read_plan.hpp>

#include <atomic>

namespace maniple {

// With an index the models are stored models: their pieces are named as in the checkpoint (weight_names.hpp).

// The replica that reads each stored tensor, by the tensor's name: for jobs in which replicas exchange packed
// weights and not stored bytes. One replica reads all tensors of a parameter, and all replicas read about the
// same amount. whole: the stored model of RankPlan{}.
using Readers = std::map<std::string, int>;
Readers readers_of(Model& whole, int replicas);

// The stored boxes that fill the model's parameters; with readers, only those that `replica` reads.
WeightNeeds needs_of(Model& model, const WeightIndex& index, const QuantScheme& scheme,
                     const Readers& readers = {}, int replica = 0);

// Allocates the weights, without values; weight_type, of what is not quantised: bf16, fp16 or fp32. index: null without a
// checkpoint. Returns their bytes.
size_t make_weights(Model& model, Ops& ops, DType weight_type, const QuantScheme& scheme,
                    const WeightIndex* index);

struct LoadedBytes {
  uint64_t count = 0;
  // Stored numbers that are NaN or infinite, by tensor: among the bytes that this rank read; on rank 0 also among known values.
  std::map<std::string, uint64_t> not_finite;
};

// Fills allocated weights from a checkpoint; returns what this rank read. Collective over the ranks
// of `replicas`: ranks of `transport`, by replica and member. If this rank fails to read or store, it throws
// after it has served the others; the caller must then let all ranks know. `blocks` grows with each stored slice, as a sign of
// progress.
LoadedBytes load_weights(Model& model, Ops& ops, const WeightIndex& index, const QuantScheme& scheme,
                         std::span<const ReadRound> plan, Transport& transport,
                         std::span<const std::vector<int>> replicas, std::atomic<uint32_t>& blocks);

// Sends what each replica has loaded to the others. Collective over `data_group`: the same member in all
// replicas.
void share_weights(Model& model, Communicator& data_group, const Readers& readers,
                   std::atomic<uint32_t>& blocks);

}  // namespace maniple
