#include <runtime/scheduling/window_blocks.hpp>

#include <algorithm>

namespace maniple {

WindowPool WindowPool::of(uint32_t length, uint32_t block_size, uint32_t max_num_seqs,
                          uint64_t tokens_in_flight, uint32_t num_blocks) {
  if (length == 0) return {};
  // The blocks that a window of computed tokens touches, and the one that a step begins.
  const uint64_t of_sequence = blocks_for(length, block_size) + 2,
                 wanted = max_num_seqs * (of_sequence + 1) + blocks_for(tokens_in_flight, block_size);
  return {static_cast<uint32_t>(std::min<uint64_t>(wanted, num_blocks)), length};
}

WindowBlocks::WindowBlocks(const WindowPool& sizes, uint32_t num_blocks, uint32_t block_size)
    : sizes_(sizes),
      block_size_(block_size),
      pool_(sizes.blocks),
      of_blocks_(sizes.blocks > 0 ? num_blocks : 0, -1),
      blocks_(sizes.blocks, -1) {}

bool WindowBlocks::suits(std::span<const int32_t> blocks, uint32_t computed) const {
  if (of_blocks_.empty()) return true;
  const auto seen = blocks.subspan(std::min(first_index(computed), blocks.size()));
  return std::ranges::all_of(seen, [&](int32_t block) { return of(block) >= 0; });
}

bool WindowBlocks::has_room(std::span<const int32_t> blocks, uint32_t computed, size_t fresh) const {
  if (of_blocks_.empty()) return true;
  const auto seen = blocks.subspan(std::min(first_index(computed), blocks.size()));
  const auto from_free = std::ranges::count_if(seen, [&](int32_t block) { return pool_.is_free(of(block)); });
  return static_cast<size_t>(from_free) + fresh <= pool_.num_free();
}

size_t WindowBlocks::missing(const Sequence& sequence, uint32_t end) const {
  const size_t wanted = of_blocks_.empty() ? 0 : blocks_for(end, block_size_);
  return wanted - std::min(wanted, sequence.window_blocks.size());
}

void WindowBlocks::share(Sequence& sequence, size_t shared) {
  if (of_blocks_.empty()) return;
  sequence.first_window_block = std::min(first_index(sequence.num_computed), shared);
  for (size_t index = 0; index < shared; ++index) {
    const int32_t id = index < sequence.first_window_block ? -1 : of(sequence.blocks[index]);
    if (id >= 0) pool_.hold(id);
    sequence.window_blocks.append(id);
  }
}

uint32_t WindowBlocks::cover(Sequence& sequence, uint32_t end) {
  if (of_blocks_.empty()) return end;
  for (size_t count = missing(sequence, end); count > 0 && pool_.num_free() > 0; --count) {
    const int32_t id = pool_.next(), block = sequence.blocks[sequence.window_blocks.size()];
    if (const int32_t before = std::exchange(block_of(id), block); before >= 0)
      of_blocks_[static_cast<size_t>(before)] = -1;
    of_blocks_[static_cast<size_t>(block)] = id;
    pool_.hold(id);
    sequence.window_blocks.append(id);
  }
  return static_cast<uint32_t>(std::min<size_t>(end, sequence.window_blocks.size() * block_size_));
}

void WindowBlocks::leave_behind(Sequence& sequence) {
  const size_t first = std::min(first_index(sequence.num_computed), sequence.window_blocks.size());
  for (size_t& index = sequence.first_window_block; index < first; ++index)
    pool_.drop(sequence.window_blocks[index], 0);
}

void WindowBlocks::release(Sequence& sequence, uint64_t last_step_in_flight) {
  for (size_t index = sequence.window_blocks.size(); index > sequence.first_window_block; --index)
    pool_.drop(sequence.window_blocks[index - 1], last_step_in_flight);
  sequence.window_blocks.clear();
  sequence.first_window_block = 0;
}

void WindowBlocks::detach(int32_t block) {
  const int32_t id = of(block);
  if (id < 0) return;
  of_blocks_[static_cast<size_t>(block)] = block_of(id) = -1;
  pool_.reuse_first(id);
}

}  // namespace maniple
