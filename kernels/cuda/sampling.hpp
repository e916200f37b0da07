// The sampling kernels, for host code. Pointers are device memory.
// ops.hpp and sampling_batch.hpp define the results. Ids stay below 2^24.
#pragma once

#include <device/stream.hpp>
#include <kernels/sampling_batch.hpp>

#include <cstdint>

namespace maniple::cuda {

// Logits of a shard: [rows, width], of which the first `count` columns are the ids from `first` on.
struct ShardLogits {
  const float* logits;
  int rows;
  int width;
  int32_t first;
  int count;
};
// Logits gathered as [shards, rows, width]; ids from `vocabulary` on are padding.
struct GatheredLogits {
  const float* logits;
  int rows;
  int width;
  int vocabulary;
};

// partial: room for max_parts results of a row.
inline constexpr int max_parts = 64;
void best_candidates(device::Stream stream, const ShardLogits& logits, const SamplingRow* how,
                     const Cut* cuts, Candidate* partial, Candidate* out);
void row_maxima(device::Stream stream, const ShardLogits& logits, float* maxima);
// maxima: [shards, rows].
void exp_sums(device::Stream stream, const ShardLogits& logits, const float* maxima, int shards, int chunks,
              float* sums);
// listed: [rows], as in the functions below.
void candidates(device::Stream stream, const ShardLogits& logits, const int32_t* listed, int rows,
                CandidateList* partial, CandidateList* out);
void filter_candidates(device::Stream stream, const CandidateList* lists, int shards,
                       const ShardLogits& logits, const int32_t* listed, int rows, const SamplingRow* how,
                       Cut* cuts);
// in_place: of all rows; else of the listed ones.
void filter_logits(device::Stream stream, const GatheredLogits& logits, bool in_place, const int32_t* listed,
                   int rows, const SamplingRow* how, Cut* cuts);
inline constexpr int max_largest_logits = 1024;
void largest_logits(device::Stream stream, const GatheredLogits& logits, int row, int count, TokenLogit* out);

}  // namespace maniple::cuda
