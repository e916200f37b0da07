// Shorthands of the scheduling tests.
#pragma once

#include <runtime/scheduling/scheduler.hpp>

#include <numeric>

namespace maniple {

// What only tests ask.
struct Inspector {
  static std::vector<int32_t> free_order(const BlockManager& manager) {
    return {manager.pool_.free_.begin(), manager.pool_.free_.end()};
  }
  static uint32_t holders(const BlockManager& manager, int32_t block) {
    return manager.pool_.at(block).holders;
  }
  static int32_t window_of(const BlockManager& manager, int32_t block) { return manager.windows_.of(block); }
  static bool published(const BlockManager& manager, int32_t block) { return manager.at(block).serial != 0; }

  // They throw if the state is inconsistent. holders: every sequence that holds blocks.
  static void check_integrity(const BlockManager& manager, std::span<const Sequence* const> holders);
  static void check_integrity(const Scheduler& scheduler);

 private:
  static void check_integrity(const BlockPool& pool, const std::vector<uint32_t>& holders);
  static void check_integrity(const WindowBlocks& windows, std::span<const Sequence* const> sequences);
};

// first, first + 1, ...
inline std::vector<int32_t> counting(int32_t first, size_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

inline std::vector<int32_t> joined(std::vector<int32_t> head, const std::vector<int32_t>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

// Prompts of different requests share nothing.
inline GenerationRequest request(RequestId id, size_t prompt_length, uint32_t max_tokens = 16) {
  GenerationRequest made;
  made.id = id;
  made.prompt = counting(static_cast<int32_t>(id) * 100000, prompt_length);
  made.sampling.max_tokens = max_tokens;
  return made;
}

// Answers with the same token for every row.
inline StepResult answer(const StepPlan& plan, int32_t token = 42) {
  StepResult result;
  result.step = plan.step;
  for (const SequenceStep& sequence : plan.sequences) {
    result.counts.push_back(sequence.rows());
    result.tokens.insert(result.tokens.end(), sequence.rows(), SampledToken{token, 0.0F, 0});
  }
  return result;
}

inline std::vector<uint32_t> query_lengths(const StepPlan& plan) {
  std::vector<uint32_t> lengths;
  for (const SequenceStep& sequence : plan.sequences) lengths.push_back(sequence.query_length);
  return lengths;
}

}  // namespace maniple
