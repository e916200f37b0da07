// Every rank's mirror of the running sequences. It applies each plan of the scheduler and derives
// lengths, positions and block tables from it. It does not hold the last sampled tokens: execution keeps
// them on the device.
#pragma once

#include <runtime/scheduling/step_plan.hpp>
#include <runtime/scheduling/window_blocks.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace maniple {

// One sequence of the step. Query token i is at position past_length + i.
struct SequenceView {
  Seat seat = 0;
  uint32_t past_length = 0;
  uint32_t query_length = 0;
  uint32_t rows_sampled = 0;                    // at the end of the query
  uint32_t rows_scored = 0;                     // before the last known tokens
  std::span<const int32_t> known_tokens;        // in the plan; a missing last one is the last sampled token
  std::span<const int32_t> blocks;              // covers positions 0 .. past_length + query_length - 1
  uint32_t seen_blocks = 0;                     // how many of them earlier views of this seat had
  std::span<const int32_t> window_blocks = {};  // likewise, of layers with a window; -1 where it sees nothing
  uint32_t seen_window_blocks = 0;
  const SamplingParams* sampling = nullptr;
  uint32_t cached_length = 0;  // so many tokens are in blocks that others may read: they are not written
  uint32_t prompt_length = 0;  // the tokens from there on are the completion

  uint32_t rows() const { return rows_scored + rows_sampled; }
};

class SequenceTable {
 public:
  // max_rows: of a plan, at least max_num_seqs. tokens_in_plan: plans that leave the last sampled token to the ranks are refused.
  SequenceTable(uint32_t max_num_seqs, uint32_t num_blocks, uint32_t block_size, bool tokens_in_plan = false,
                uint32_t max_rows = 0, const WindowPool& windows = {});

  // Checks and applies the plan. The views are valid until the next call, while the plan lives. Throws Error
  // (fault), "rank state drifted: ...", when this rank and rank 0 disagree; the table is unusable after that.
  std::span<const SequenceView> apply(const StepPlan& plan);

 private:
  struct Row {
    bool taken = false;
    uint32_t length = 0;  // tokens in the KV cache once the plans so far have run
    uint64_t step = 0;    // the last that computes this sequence
    BlockTable blocks, window_blocks;
    uint32_t seen_blocks = 0, seen_window_blocks = 0;
    uint32_t cached_length = 0;
    SamplingParams sampling;
    uint32_t prompt_length = 0;
  };

  Row& seated(Seat seat);
  void release(Seat seat);
  void admit(const Admission& admission);
  static void check_block(int32_t block, uint32_t count);
  void append(Row& row, std::span<const int32_t> blocks) const;
  void append_windows(Row& row, std::span<const int32_t> blocks) const;
  void check_windows(const Row& row, const SequenceStep& sequence, uint32_t past) const;
  void view(const SequenceStep& sequence, std::span<const int32_t>& known_tokens);
  void check_rows(const StepPlan& plan) const;
  void check_state(const StepPlan& plan, std::span<const int32_t> left_over) const;

  uint32_t num_blocks_;
  uint32_t block_size_;
  bool tokens_in_plan_;
  uint32_t max_rows_;
  WindowPool windows_;
  uint64_t last_step_ = 0;
  std::vector<Row> rows_;  // [max_num_seqs]
  std::vector<SequenceView> views_;
};

}  // namespace maniple
