// The messages of a step: its plan, from rank 0 to every rank of a replica, and its result, from the
// replica's reporter to rank 0. Plain data. A plan holds what changed; the ranks derive the rest
// with a SequenceTable.
#pragma once

#include <kernels/support/sampling_params.hpp>
#include <runtime/scheduling/block_table.hpp>
#include <runtime/scheduling/token_score.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace maniple {

using Seat = uint32_t;  // index in the running set, below max_num_seqs

enum class Command : uint8_t { run, stop };

// A sequence takes a free seat. The prefix cache holds its first cached_length tokens.
struct Admission {
  Seat seat = 0;
  uint32_t cached_length = 0;
  SamplingParams
      sampling;  // stop_token_ids: all that end the completion, if min_tokens forbids them at first
  std::vector<int32_t> blocks;
  uint64_t request = 0;        // its id, for messages about faults
  uint32_t prompt_length = 0;  // the tokens from there on are the completion
  // Of the pool of layers with a window, from the first token on; -1, before all others: no window sees them.
  std::vector<int32_t> window_blocks = {};

  bool operator==(const Admission&) const = default;
};

// Blocks appended to a seated sequence.
struct NewBlocks {
  Seat seat = 0;
  std::vector<int32_t> ids;

  bool operator==(const NewBlocks&) const = default;
};

// The keys and values of a block, and its tokens, become those of another.
struct BlockCopy {
  int32_t from = 0, to = 0;

  bool operator==(const BlockCopy&) const = default;
};

// query_length >= 1 tokens of one sequence. Their ids are, in this order: `known` ones of
// StepPlan::known_tokens, then, if one is missing, the token last sampled for the seat. One more than the query has may be known, where its
// last row is scored.
struct SequenceStep {
  Seat seat = 0;
  // Position of the first token. Absent: the sequence's length after the earlier plans, which every rank
  // knows. Given: at most that length; the tokens from there on are computed again. In both cases the next
  // plan finds a sequence of past_length + query_length tokens, whatever the step's result is.
  std::optional<uint32_t> past_length = {};
  uint32_t query_length = 1;
  uint32_t known = 0;         // query_length, or one less or more
  uint32_t rows_sampled = 1;  // the last rows of the query; the last of them is the token last sampled
  uint32_t rows_scored = 0;   // rows before the last known tokens, one for each: the scores of these

  uint32_t rows() const { return rows_scored + rows_sampled; }

  bool operator==(const SequenceStep&) const = default;
};

struct StepPlan {
  uint64_t step = 0;  // 1, 2, 3, ... within a replica
  uint32_t replica = 0;
  Command command = Command::run;
  std::vector<Seat> released;  // before the admissions, which may take the same seats
  std::vector<Admission> admissions;
  std::vector<NewBlocks> new_blocks, new_window_blocks;
  std::vector<BlockCopy> copies, window_copies;  // one after the other, before the step
  std::vector<SequenceStep> sequences;           // in batch order, of different seats; at most max_rows rows
  std::vector<int32_t> known_tokens;             // of the sequences, concatenated
  uint64_t state_hash = 0;                       // fold_state over the sequences, in batch order

  bool operator==(const StepPlan&) const = default;
};

// What a plan assumes of one sequence before the step computes: its length in the KV cache, and its blocks.
inline uint64_t fold_state(uint64_t hash, Seat seat, uint32_t past_length, const BlockTable& blocks,
                           const BlockTable& window_blocks = {}) {
  hash = mix(hash, (uint64_t{seat} << 32) | past_length);
  for (const BlockTable* table : {&blocks, &window_blocks})
    hash = mix(mix(hash, table->size()), table->hash());
  return hash;
}

struct SampledToken {
  int32_t id = 0;             // -1: a raw logit was not finite; of a scored row: what a greedy draw takes
  float logprob = 0.0F;       // 0 unless asked for; of a scored row: that of the known token
  uint32_t alternatives = 0;  // how many of StepResult::alternatives are this token's

  bool operator==(const SampledToken&) const = default;
};

// Where the time of a step went on the rank that answers, in microseconds.
struct StepTimes {
  static constexpr uint32_t unknown = UINT32_MAX;
  uint32_t forward = 0;  // to the logits; on GPUs, which work beside the host, to the tokens
  uint32_t sample = 0;   // from logits to tokens; on GPUs 0
  uint32_t communication =
      0;  // within both, in collectives; unknown where a GPU runs them in a captured graph

  bool operator==(const StepTimes&) const = default;
};

// The answer to every plan with Command::run, also if it samples nothing.
struct StepResult {
  uint64_t step = 0;
  std::vector<uint32_t> counts;  // tokens of each of the plan's sequences: their rows(), scored ones first
  std::vector<SampledToken> tokens;        // concatenated in batch order
  std::vector<TokenLogprob> alternatives;  // concatenated in the order of tokens, most likely first
  StepTimes times;

  bool operator==(const StepResult&) const = default;
};

}  // namespace maniple
