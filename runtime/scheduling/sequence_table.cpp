#include <kernels/support/check.hpp>
#include <runtime/scheduling/sequence_table.hpp>

#include <algorithm>
#include <utility>

namespace maniple {
namespace {

template <typename... Args>
void check(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds)
    throw Error(ExitCode::fault, "rank state drifted: " + fmt::format(format, std::forward<Args>(args)...),
                "this rank would compute something else than rank 0 planned",
                "restart the job; finished work is kept");
}

}  // namespace

SequenceTable::SequenceTable(uint32_t max_num_seqs, uint32_t num_blocks, uint32_t block_size,
                             bool tokens_in_plan, uint32_t max_rows, const WindowPool& windows)
    : num_blocks_(num_blocks),
      block_size_(block_size),
      tokens_in_plan_(tokens_in_plan),
      max_rows_(std::max(max_rows, max_num_seqs)),
      windows_(windows),
      rows_(max_num_seqs) {
  require(block_size > 0, "a block holds at least one token");
}

std::span<const SequenceView> SequenceTable::apply(const StepPlan& plan) {
  check(plan.step == last_step_ + 1, "plan {} follows plan {}", plan.step, last_step_);
  last_step_ = plan.step;
  for (const Seat seat : plan.released) release(seat);
  for (const Admission& admission : plan.admissions) admit(admission);
  for (const NewBlocks& fresh : plan.new_blocks) append(seated(fresh.seat), fresh.ids);
  for (const NewBlocks& fresh : plan.new_window_blocks) append_windows(seated(fresh.seat), fresh.ids);
  for (const auto& [copies, count] :
       {std::pair(&plan.copies, num_blocks_), std::pair(&plan.window_copies, windows_.blocks)})
    for (const BlockCopy& copy : *copies) {
      check_block(copy.from, count);
      check_block(copy.to, count);
    }
  views_.clear();
  std::span<const int32_t> known_tokens = plan.known_tokens;
  for (const SequenceStep& sequence : plan.sequences) view(sequence, known_tokens);
  check_rows(plan);
  check_state(plan, known_tokens);
  for (const SequenceView& view : views_) rows_[view.seat].length = view.past_length + view.query_length;
  return views_;
}

SequenceTable::Row& SequenceTable::seated(Seat seat) {
  check(seat < rows_.size() && rows_[seat].taken, "seat {} of {} is not taken", seat, rows_.size());
  return rows_[seat];
}

void SequenceTable::release(Seat seat) {
  Row& row = seated(seat);
  row.taken = false;
  row.blocks.clear();
  row.window_blocks.clear();
  row.seen_blocks = row.seen_window_blocks = 0;
}

void SequenceTable::admit(const Admission& admission) {
  check(admission.seat < rows_.size() && !rows_[admission.seat].taken, "seat {} of {} is not free",
        admission.seat, rows_.size());
  check(admission.prompt_length <= INT32_MAX, "seat {} has a prompt of {} tokens", admission.seat,
        admission.prompt_length);
  Row& row = rows_[admission.seat];
  row.taken = true;
  row.length = row.cached_length = admission.cached_length;
  row.sampling = admission.sampling;
  row.prompt_length = admission.prompt_length;
  append(row, admission.blocks);
  append_windows(row, admission.window_blocks);
}

void SequenceTable::check_block(int32_t block, uint32_t count) {
  check(block >= 0 && static_cast<uint32_t>(block) < count, "block {} is not one of {}", block, count);
}

void SequenceTable::append(Row& row, std::span<const int32_t> blocks) const {
  for (const int32_t block : blocks) {
    check_block(block, num_blocks_);
    row.blocks.append(block);
  }
}

void SequenceTable::append_windows(Row& row, std::span<const int32_t> blocks) const {
  for (const int32_t block : blocks) {
    const bool left_out =
        block == -1 && (row.window_blocks.size() == 0 || row.window_blocks.ids().back() == -1);
    if (!left_out) check_block(block, windows_.blocks);
    row.window_blocks.append(block);
  }
}

// The query's tokens have window blocks, and so has all that its first one sees.
void SequenceTable::check_windows(const Row& row, const SequenceStep& sequence, uint32_t past) const {
  if (windows_.blocks == 0) return;
  const uint32_t end = past + sequence.query_length, seen = windows_.first_seen(past + 1);
  check(end <= row.window_blocks.size() * block_size_ && row.window_blocks[seen / block_size_] >= 0,
        "seat {} computes {} tokens after {} and has {} window blocks of {}, or not the first that it sees",
        sequence.seat, sequence.query_length, past, row.window_blocks.size(), block_size_);
}

// Checked before anything is indexed: the plan came over a network.
void SequenceTable::view(const SequenceStep& sequence, std::span<const int32_t>& known_tokens) {
  Row& row = seated(sequence.seat);
  check(std::exchange(row.step, last_step_) != last_step_, "plan {} computes seat {} twice", last_step_,
        sequence.seat);
  const uint32_t past = sequence.past_length.value_or(row.length), query = sequence.query_length;
  check(past <= row.length, "seat {} goes on after {} tokens and has {}", sequence.seat, past, row.length);
  check(query > 0 && uint64_t{past} + query <= row.blocks.size() * block_size_,
        "seat {} computes {} tokens after {} and has {} blocks of {}", sequence.seat, query, past,
        row.blocks.size(), block_size_);
  check_windows(row, sequence, past);
  const uint32_t known = sequence.known;
  const bool one_less = known + 1 == query && !tokens_in_plan_, one_more = known == query + 1;
  check((known == query || one_less || one_more) && known <= known_tokens.size(),
        "seat {} computes {} tokens, {} of them known, and the plan holds {}", sequence.seat, query, known,
        known_tokens.size());
  check(sequence.rows_sampled <= query, "seat {} computes {} tokens and samples {}", sequence.seat, query,
        sequence.rows_sampled);
  check(sequence.rows_scored < std::max(known, 1U) && (sequence.rows_scored > 0 || !one_more),
        "seat {} computes {} tokens, {} of them known, and scores {}", sequence.seat, query, known,
        sequence.rows_scored);
  views_.push_back({.seat = sequence.seat,
                    .past_length = past,
                    .query_length = query,
                    .rows_sampled = sequence.rows_sampled,
                    .rows_scored = sequence.rows_scored,
                    .known_tokens = known_tokens.first(known),
                    .blocks = row.blocks.ids(),
                    .seen_blocks = row.seen_blocks,
                    .window_blocks = row.window_blocks.ids(),
                    .seen_window_blocks = row.seen_window_blocks,
                    .sampling = &row.sampling,
                    .cached_length = row.cached_length,
                    .prompt_length = row.prompt_length});
  row.seen_blocks = static_cast<uint32_t>(row.blocks.size());
  row.seen_window_blocks = static_cast<uint32_t>(row.window_blocks.size());
  known_tokens = known_tokens.subspan(known);
}

void SequenceTable::check_rows(const StepPlan& plan) const {
  uint64_t rows = 0;
  for (const SequenceView& view : views_) rows += view.rows();
  check(rows <= max_rows_, "plan {} has {} rows, and {} is the most", plan.step, rows, max_rows_);
}

void SequenceTable::check_state(const StepPlan& plan, std::span<const int32_t> left_over) const {
  check(left_over.empty(), "{} tokens of plan {} belong to no sequence", left_over.size(), plan.step);
  uint64_t hash = 0;
  for (const SequenceView& view : views_)
    hash = fold_state(hash, view.seat, view.past_length, rows_[view.seat].blocks,
                      rows_[view.seat].window_blocks);
  check(hash == plan.state_hash, "plan {} assumes other lengths or blocks (state {:016x}, here {:016x})",
        plan.step, plan.state_hash, hash);
}

}  // namespace maniple
