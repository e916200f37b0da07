// The sampling kernels and those of device tables, for host code. Pointers are device memory.
// ops.hpp and sampling_batch.hpp define the results. Ids stay below 2^24.
#pragma once

#include <device/stream.hpp>
#include <kernels/logit_adjustments.hpp>
#include <kernels/sampling_batch.hpp>

#include <cstdint>
#include <span>

namespace maniple::cuda {

// Logits of the ids from `first` on: [rows, width], `count` of them in the first columns; or gathered as [shards, rows, width].
struct Logits {
  const float* logits;
  int rows;
  int width;
  int32_t first;
  int count;
};

// shard: that of `logits`, which change.
void adjust_logits(device::Stream stream, float* logits, const Logits& shard, const AdjustedRow* rows,
                   int count, const SequenceTables& tables);
void logits_of(device::Stream stream, const Logits& logits, const int32_t* ids, float* out);
// raw: one row for each of `rows`.
void raw_logits(device::Stream stream, const Logits& raw, const int32_t* rows, Candidate* candidates);
// partial: room for max_parts results of a row.
inline constexpr int max_parts = 48;
void best_candidates(device::Stream stream, const Logits& logits, const SamplingRow* how, const Cut* cuts,
                     Candidate* partial, Candidate* out);
void row_maxima(device::Stream stream, const Logits& logits, float* maxima);
// maxima: [shards, rows].
void exp_sums(device::Stream stream, const Logits& logits, const float* maxima, int shards, int chunks,
              float* sums);
// listed: [rows], as in the functions below.
void candidates(device::Stream stream, const Logits& logits, const int32_t* listed, int rows,
                CandidateList* partial, CandidateList* out);
void filter_candidates(device::Stream stream, const CandidateList* lists, int shards, const Logits& logits,
                       const int32_t* listed, int rows, const SamplingRow* how, Cut* cuts);
// in_place: of all rows; else of the listed ones. room: filter_bytes() for each of the rows that are filtered at once.
int64_t filter_bytes(const Logits& logits);
void filter_logits(device::Stream stream, const Logits& logits, bool in_place, const int32_t* listed,
                   int rows, const SamplingRow* how, std::span<std::byte> room, Cut* cuts);
inline constexpr int max_largest_logits = 1024;
void largest_logits(device::Stream stream, const Logits& logits, int row, int count, TokenLogit* out);

// Device tables by seat.
void scatter(device::Stream stream, const int32_t* indices, const int32_t* values, int32_t* out, int count);
void resolve_last_tokens(device::Stream stream, const int32_t* last_tokens, int32_t* ids, int count,
                         const int32_t* places, int32_t* tokens);
// gathered is [shards, rows]. seats: or null.
void choose(device::Stream stream, const Candidate* gathered, int shards, int rows, const int32_t* seats,
            Candidate* out, int32_t* last_tokens);

}  // namespace maniple::cuda
