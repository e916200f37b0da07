// The holders of each KV block, and the blocks that sequences with the same prefix can share. Modelled on
// nano-vLLM's BlockManager; README.md explains the differences.
#pragma once

#include <cstdint>
#include <optional>
#include <runtime/scheduling/sequence.hpp>
#include <runtime/scheduling/window_blocks.hpp>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace maniple {

// XXH64, seed 0, over the prefix hash (8 bytes little-endian; absent for the first block), then each token as
// a signed 64-bit little-endian integer: nano-vLLM's hash of a block.
uint64_t block_hash(std::optional<uint64_t> prefix, std::span<const int32_t> tokens);

class BlockManager {
 public:
  using HashFunction = uint64_t (*)(std::optional<uint64_t> prefix, std::span<const int32_t> tokens);
  struct Lack {
    size_t blocks = 0, windows = 0;
  };

  BlockManager(uint32_t num_blocks, uint32_t block_size, bool prefix_cache, HashFunction hash = block_hash,
               const WindowPool& windows = {});

  // The number of leading tokens that published blocks hold, with what a window of the next one sees: whole blocks, and never all
  // tokens, as at least one must be computed. Sequences that share their prompts find also the beginning of a block, and all tokens.
  uint32_t cached_length(const Sequence& sequence) const;

  // Gives a sequence without blocks the blocks for all its tokens: published ones where it can, whose tokens
  // num_cached and num_computed then count (the second leaves one to compute), and free ones, the first of them perhaps as a copy.
  // Window blocks only up to the first token to compute. False if too few are free; then nothing changes.
  bool admit(Sequence& sequence);
  // What must be copied before the next step, in this order.
  std::vector<BlockCopy> take_copies() { return std::exchange(copies_, {}); }
  std::vector<BlockCopy> take_window_copies() { return std::exchange(window_copies_, {}); }
  // What sequences lack for their tokens, with those that plans in flight sample.
  Lack missing(const Sequence& sequence) const;
  bool has(const Lack& lack) const {
    return lack.blocks <= pool_.num_free() && lack.windows <= windows_.pool().num_free();
  }
  // Gives it the missing blocks. False if too few are free; then nothing changes.
  bool grow(Sequence& sequence);
  // Gives window blocks to its tokens up to `end`, or to fewer where few are free. Returns the tokens that have some.
  uint32_t cover(Sequence& sequence, uint32_t end) { return windows_.cover(sequence, end); }
  // Takes the window blocks that nothing sees any more, plans in flight included.
  void leave_behind(Sequence& sequence);
  // Publishes the blocks that the computed tokens fill. Only after the forward: otherwise another sequence of
  // the same step could read them before they are written.
  void publish(Sequence& sequence);
  // Takes the sequence's blocks. Blocks without another holder can be read (as a prefix) at once, and reused
  // after the plan of last_step_in_flight is answered.
  void release(Sequence& sequence, uint64_t last_step_in_flight);
  void answered(uint64_t step);  // all plans up to `step` are answered

  const BlockPool& pool() const { return pool_; }
  const BlockPool& window_pool() const { return windows_.pool(); }

 private:
  friend struct Inspector;  // of the tests
  struct Block {
    uint64_t serial = 0;  // of its publication, never used twice; 0: not published
    uint64_t parent = 0;  // serial of the block before it, 0 for a first block
    uint64_t hash = 0;
    std::vector<int32_t> tokens;  // kept to verify a hit; empty: nobody can find it
    bool shared = false;          // it is in shared_, and perhaps not full
  };
  struct Prefix {
    std::vector<int32_t> blocks;
    PrefixChain chain;
    int32_t partial = -1;  // block whose first tokens follow
    uint32_t length = 0;   // in tokens
  };

  Block& at(int32_t block) { return blocks_[static_cast<size_t>(block)]; }
  const Block& at(int32_t block) const { return blocks_[static_cast<size_t>(block)]; }
  void hold_new(Sequence& sequence, size_t count);
  void forget(int32_t block);
  bool holds(const Block& block, uint64_t parent, std::span<const int32_t> tokens) const;
  std::span<const int32_t> tokens_of(const Sequence& sequence, size_t index) const;
  std::span<const int32_t> tail_of(const Sequence& sequence, size_t end) const;
  void share(int32_t block, uint64_t parent, std::span<const int32_t> tokens);
  bool keeps(const Sequence& sequence) const { return prefix_cache_ || sequence.shares_prompt; }
  Prefix find_prefix(const Sequence& sequence) const;
  void find_partial(const Sequence& sequence, Prefix& found) const;
  bool suits(const Sequence& sequence, const Prefix& prefix) const;
  void shorten(Prefix& prefix) const;
  bool has_room(const Sequence& sequence, const Prefix& prefix) const;

  uint32_t block_size_;
  bool prefix_cache_;
  HashFunction hash_;
  uint64_t last_answered_ = 0;
  uint64_t last_serial_ = 0;
  BlockPool pool_;
  WindowBlocks windows_;
  std::vector<Block> blocks_;
  std::unordered_map<uint64_t, int32_t> published_;
  std::unordered_multimap<uint64_t, int32_t>
      shared_;  // by the serial of the block before: of sequences that share their prompts
  std::vector<BlockCopy> copies_, window_copies_;
};

}  // namespace maniple
