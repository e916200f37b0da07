// The holders of each KV block, and the blocks that sequences with the same prefix can share. Modelled on
// nano-vLLM's BlockManager; README.md explains the differences.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <runtime/scheduling/sequence.hpp>
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

  BlockManager(uint32_t num_blocks, uint32_t block_size, bool prefix_cache, HashFunction hash = block_hash);

  // The number of leading tokens that published blocks hold: whole blocks, and never all tokens, as at least
  // one must be computed. Sequences that share their prompts find also the beginning of a block, and all tokens.
  uint32_t cached_length(const Sequence& sequence) const;

  // Gives a sequence without blocks the blocks for all its tokens: published ones where it can, whose tokens
  // num_cached and num_computed then count (the second leaves one to compute), and free ones, the first of them perhaps as a copy.
  // False if too few are free; then nothing changes.
  bool admit(Sequence& sequence);
  // What must be copied before the next step, in this order.
  std::vector<BlockCopy> take_copies() { return std::exchange(copies_, {}); }
  // The number of blocks that a sequence lacks for its tokens, with those that plans in flight sample.
  size_t missing(const Sequence& sequence) const;
  // Gives it the missing blocks. False if too few are free; then nothing changes.
  bool grow(Sequence& sequence);
  // Publishes the blocks that the computed tokens fill. Only after the forward: otherwise another sequence of
  // the same step could read them before they are written.
  void publish(Sequence& sequence);
  // Takes the sequence's blocks. Blocks without another holder can be read (as a prefix) at once, and reused
  // after the plan of last_step_in_flight is answered.
  void release(Sequence& sequence, uint64_t last_step_in_flight);
  void answered(uint64_t step);  // all plans up to `step` are answered

  size_t num_blocks() const { return blocks_.size(); }
  size_t num_free() const { return free_.size(); }
  size_t num_pending() const { return pending_.size(); }

 private:
  friend struct Inspector;  // of the tests
  enum class State : uint8_t { free, held, pending };
  struct Block {
    uint32_t holders = 0;
    State state = State::free;
    std::list<int32_t>::iterator where;  // in the list of its state
    uint64_t free_after_step = 0;        // while pending
    uint64_t serial = 0;                 // of its publication, never used twice; 0: not published
    uint64_t parent = 0;                 // serial of the block before it, 0 for a first block
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
  std::list<int32_t>& list(State state);
  void move(int32_t block, State state, bool to_front = false);
  void hold(int32_t block);
  void hold_new(Sequence& sequence, size_t count);
  void forget(int32_t block);
  bool holds(const Block& block, uint64_t parent, std::span<const int32_t> tokens) const;
  std::span<const int32_t> tokens_of(const Sequence& sequence, size_t index) const;
  std::span<const int32_t> tail_of(const Sequence& sequence, size_t end) const;
  void share(int32_t block, uint64_t parent, std::span<const int32_t> tokens);
  bool keeps(const Sequence& sequence) const { return prefix_cache_ || sequence.shares_prompt; }
  Prefix find_prefix(const Sequence& sequence) const;
  void find_partial(const Sequence& sequence, Prefix& found) const;

  uint32_t block_size_;
  bool prefix_cache_;
  HashFunction hash_;
  uint64_t last_answered_ = 0;
  uint64_t last_serial_ = 0;
  std::vector<Block> blocks_;
  std::list<int32_t> free_, held_, pending_;  // together all blocks; free: reused from the front
  std::unordered_map<uint64_t, int32_t> published_;
  std::unordered_multimap<uint64_t, int32_t>
      shared_;  // by the serial of the block before: of sequences that share their prompts
  std::vector<BlockCopy> copies_;
};

}  // namespace maniple
