// Sharding as arithmetic: which part of a dimension a tensor rank holds.
#pragma once

#include <kernels/tensor/shape.hpp>

#include <vector>

namespace maniple {

// A dimension of the model that does not divide by the tensor ranks.
class Indivisible : public Error {
 public:
  Indivisible(const char* dimension, int64_t size, int parts);
  const char* dimension;  // "kv heads"
  int64_t size;
  int parts;
};

// Divisors of n, ascending, up to 64 (more ranks than that hold no part of a dimension); at most the first
// eight: for messages that name the sizes that would fit.
std::vector<int> small_divisors(int64_t n);

// Equal parts. Throws Indivisible (input) when size does not divide by parts: `what` names the dimension,
// e.g. "attention heads".
IndexRange even_shard(int64_t size, int parts, int part, const char* what);

// Parts as equal as can be, in order: any size, any number of parts.
IndexRange balanced_shard(int64_t size, int parts, int part);

// Which KV head each KV head of a tensor rank is: kv_heads / parts of its own (refused, with the sizes that
// fit, if that does not divide); when parts > kv_heads, copies of those that its query heads use. A rank's
// query heads share its KV heads in equal groups; where a rank's query heads straddle two KV heads unevenly,
// a head is listed more than once. heads divides by kv_heads and by parts.
std::vector<int64_t> kv_head_shard(int64_t heads, int64_t kv_heads, int parts, int part);

// The vocabulary padded to a multiple of 64 and of parts, then split evenly. `padded` is the shard's place in
// the padded vocabulary; `valid` is its part below vocabulary_size (empty at the end when all of it is
// padding).
struct VocabularyShard {
  IndexRange padded;
  IndexRange valid;
};
int64_t padded_vocabulary(int64_t vocabulary_size, int parts);
VocabularyShard vocabulary_shard(int64_t vocabulary_size, int parts, int part);

// A row-parallel sum over `columns` is cut into `total` reduction slices over all ranks, `local` of them on
// each. gcd(columns, 8) in all makes the bits independent of the number of ranks; where `parts` does not
// divide that, each rank is one slice of its own.
struct ReductionSlices {
  int total = 1;
  int local = 1;
  bool independent_of_parts = true;
};
ReductionSlices reduction_slices(int64_t columns, int parts);

}  // namespace maniple
