// The blocks of layers with a window, of a second, smaller pool. A KV block has a window block, for the same tokens, only while a window
// covers it, and afterwards until another block needs it. Who shares the one shares the other.
#pragma once

#include <runtime/scheduling/block_pool.hpp>
#include <runtime/scheduling/sequence.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace maniple {

// Of layers that see the last `length` tokens; without blocks there are none.
struct WindowPool {
  uint32_t blocks = 0;
  uint32_t length = 0;

  // As many as max_num_seqs running sequences and so many tokens of the steps in flight may need, and no more than there are KV blocks.
  static WindowPool of(uint32_t length, uint32_t block_size, uint32_t max_num_seqs, uint64_t tokens_in_flight,
                       uint32_t num_blocks);
  // The first token that one at `position` sees, or the one before it, which may be computed again.
  uint32_t first_seen(uint32_t position) const { return position > length ? position - length : 0; }
};

class WindowBlocks {
 public:
  WindowBlocks(const WindowPool& sizes, uint32_t num_blocks, uint32_t block_size);

  const BlockPool& pool() const { return pool_; }
  // How many of these KV blocks, the first of a sequence, it can begin with, when so many of its tokens are computed: a window sees none
  // of a later one's that is not there.
  bool suits(std::span<const int32_t> blocks, uint32_t computed) const;
  // Whether enough are free for a sequence that begins with these, and so many new ones.
  bool has_room(std::span<const int32_t> blocks, uint32_t computed, size_t fresh) const;
  size_t missing(const Sequence& sequence, uint32_t end) const;
  // Of a KV block; -1: none.
  int32_t of(int32_t block) const { return of_blocks_.empty() ? -1 : of_blocks_[static_cast<size_t>(block)]; }

  // Gives a sequence those of its first `shared` blocks that it sees.
  void share(Sequence& sequence, size_t shared);
  // Gives it new ones up to token `end`, as far as there are free ones. Returns the tokens that have some.
  uint32_t cover(Sequence& sequence, uint32_t end);
  // Takes those that neither a later token nor the last computed one sees, and so no plan in flight. They can be reused at once.
  void leave_behind(Sequence& sequence);
  void release(Sequence& sequence, uint64_t last_step_in_flight);
  // The KV block has other tokens from now on.
  void detach(int32_t block);
  template <typename IsFound>
  void answered(uint64_t step, const IsFound& is_found) {
    pool_.answered(step, [&](int32_t id) { return block_of(id) >= 0 && is_found(block_of(id)); });
  }

 private:
  friend struct Inspector;  // of the tests
  int32_t& block_of(int32_t id) { return blocks_[static_cast<size_t>(id)]; }
  size_t first_index(uint32_t computed) const { return sizes_.first_seen(computed) / block_size_; }

  WindowPool sizes_;
  uint32_t block_size_;
  BlockPool pool_;
  std::vector<int32_t> of_blocks_;  // by KV block
  std::vector<int32_t> blocks_;     // by window block: the KV block; -1: none
};

}  // namespace maniple
