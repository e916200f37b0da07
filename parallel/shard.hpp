// Sharding as arithmetic: which part of a dimension a tensor rank holds.
#pragma once

#include <kernels/tensor/shape.hpp>

#include <span>
#include <string>
#include <vector>

namespace maniple {

// A dimension of the model that does not divide by the tensor ranks.
class Indivisible : public Error {
 public:
  Indivisible(std::string dimension, int64_t size, int parts);
  std::string dimension;  // "kv heads"
  int64_t size;
  int parts;
};

// The divisors of n up to 64, ascending, at most eight: for messages that name the sizes that would fit.
std::vector<int> small_divisors(int64_t n);

// Equal parts. Throws Indivisible (input) when `parts` does not divide `size`; `what` names the dimension,
// e.g. "attention heads".
IndexRange even_shard(int64_t size, int parts, int part, const char* what);

// Parts as equal as can be, in order: any size, any number of parts.
IndexRange balanced_shard(int64_t size, int parts, int part);

// The same in whole granules. Throws Indivisible (input) where several parts would cut one.
IndexRange granular_shard(int64_t size, int parts, int part, int64_t granule);
// Whether equal parts hold whole granules.
bool keeps_granules(int64_t size, int parts, int64_t granule);

// The model's index of each KV head that a tensor rank holds. With parts <= kv_heads a rank holds its own
// kv_heads / parts heads; throws Indivisible if parts does not divide kv_heads. With more parts a rank holds
// copies of the heads that its query heads use. Each entry serves the same number of query heads: where they
// straddle two KV heads unevenly, a head is listed more than once. kv_heads and parts must divide heads.
std::vector<int64_t> kv_head_shard(int64_t heads, int64_t kv_heads, int parts, int part);

// The vocabulary is padded to a multiple of 64 and of parts, then split evenly. `padded` is the shard's range
// in the padded vocabulary; `valid` is the part of it below vocabulary_size, empty if there is none.
struct VocabularyShard {
  IndexRange padded;
  IndexRange valid;
};
int64_t padded_vocabulary(int64_t vocabulary_size, int parts);
VocabularyShard vocabulary_shard(int64_t vocabulary_size, int parts, int part);

// The layers of each stage of a pipeline, by what each layer costs; `head` is added to the cost of the last
// stage. Every stage has a layer, so stages must not exceed the layers. Of all splits the one with the smallest
// cost of the dearest stage, then the smallest sum of squares, then the fewest layers on the last stage, on the
// first, on the second, and so on.
std::vector<IndexRange> stage_layers(std::span<const int64_t> costs, int64_t head, int stages);

// The slices of a sum over experts: the largest power of two that divides their number. Ranks in a number that
// divides it hold whole subtrees.
int64_t expert_slices(int64_t experts);

// A row-parallel sum over `columns` has `total` reduction slices over all ranks, `local` of them on each.
// total = gcd(columns, 8) makes the bits independent of the number of ranks. Where `parts` does not divide
// that number, each rank holds one slice. No slice holds a part of `granule` columns.
struct ReductionSlices {
  int total = 1;
  int local = 1;
  bool independent_of_parts = true;
};
ReductionSlices reduction_slices(int64_t columns, int parts, int64_t granule = 1);

}  // namespace maniple
