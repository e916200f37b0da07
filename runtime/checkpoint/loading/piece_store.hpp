// What a rank keeps of the stored tensors while they arrive: decoded by chunks of rows and packed into its weights.
#pragma once

#include <layers/models/model.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>

#include <atomic>
#include <map>

namespace maniple {

// Stores rows [row, ...) of the piece's matrix or vector in an allocated parameter: all rows of a transposed piece.
void store_rows(Ops& ops, Parameter& parameter, const WeightPiece& piece, int64_t row, RawRows raw);
// How many rows of the piece are decoded at once: whole panels of the kernels, or all.
int64_t rows_at_once(const WeightPiece& piece);

class PieceStore {
 public:
  // The references must outlive it. `blocks` grows with each stored chunk.
  PieceStore(Model& model, Ops& ops, const WeightIndex& index, const QuantScheme& scheme,
             std::atomic<uint32_t>& blocks);
  // bytes: a box of the tensor, row by row; rows of what needs_of says. Throws Error (input) on values that are no numbers.
  void take(const IndexedTensor& tensor, const Box& box, std::span<const std::byte> bytes);

 private:
  // A piece whose matrix needs several tensors waits until all have arrived; the plan sees to it that few wait.
  struct Piece {
    Parameter* parameter;
    const WeightPiece* source;
    std::unique_ptr<const StoredWeight> stored;
    std::vector<StoredBox> needs;
    std::vector<std::vector<std::byte>> held;  // of each need
    int64_t missing_rows = 0;                  // of all needs
  };
  void hold(Piece& piece, size_t need, const TensorInfo& info, IndexRange rows,
            std::span<const std::byte> bytes);
  void decode(const Piece& piece, IndexRange rows, std::span<const StoredPart> parts);

  Ops& ops_;
  const WeightIndex& index_;
  std::atomic<uint32_t>& blocks_;
  std::vector<Piece> pieces_;
  std::multimap<const IndexedTensor*, std::pair<size_t, size_t>> by_tensor_;  // piece, need
  DecodedRows memory_;
};

}  // namespace maniple
