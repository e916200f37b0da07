// Fills a model's parameters: reads one raw slice at a time, packs it, lets it go. Replica 0 reads; the other
// replicas receive by broadcast, so that the file system delivers the model once per job.
#pragma once

#include <layers/models/model.hpp>
#include <parallel/communicator.hpp>
#include <runtime/checkpoint/checkpoint_reader.hpp>

#include <atomic>
#include <memory>

namespace maniple {

// Where raw slices come from.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual DType dtype(const WeightPiece& piece) const = 0;
  // out holds rows x piece.columns elements of dtype(piece).
  virtual void read(const WeightPiece& piece, IndexRange rows, std::span<std::byte> out) const = 0;
};

std::unique_ptr<WeightSource> weights_of(const CheckpointReader& checkpoint);
// Seeded weights of the model's shape; a value depends on (seed, name, global index) alone. Norms are 1,
// biases 0.
std::unique_ptr<WeightSource> random_weights(uint64_t seed);

// Throws Error (input) naming missing, extra or misshapen tensors of the checkpoint. Reads headers only.
void check_names(Model& model, const CheckpointReader& checkpoint);

// What the weights of this rank will take, before anything is loaded; packing may add a little.
size_t weight_bytes(Model& model, DType weight_type);

// weight_type: bf16 or fp32. `source` is read on rank 0 of `replicas`, and may be null elsewhere. Returns the
// bytes of this rank's weights. `blocks` grows with each slice that is in its place.
size_t load_weights(Model& model, Ops& ops, DType weight_type, const WeightSource* source,
                    Communicator& replicas, std::atomic<uint32_t>& blocks);

}  // namespace maniple
