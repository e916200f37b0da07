#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <kernels/support/check.hpp>
#include <runtime/scheduling/block_manager.hpp>

namespace maniple {

static_assert(std::endian::native == std::endian::little,
              "the hash and the step codec are defined little-endian");

uint64_t block_hash(std::optional<uint64_t> prefix, std::span<const int32_t> tokens) {
  std::vector<int64_t> words;
  words.reserve(tokens.size() + 1);
  if (prefix) words.push_back(static_cast<int64_t>(*prefix));
  words.insert(words.end(), tokens.begin(), tokens.end());
  return XXH64(words.data(), words.size() * sizeof(int64_t), 0);
}

BlockManager::BlockManager(uint32_t num_blocks, uint32_t block_size, bool prefix_cache, HashFunction hash,
                           const WindowPool& windows)
    : block_size_(block_size),
      prefix_cache_(prefix_cache),
      hash_(hash),
      pool_(num_blocks),
      windows_(windows, num_blocks, block_size),
      blocks_(num_blocks) {}

uint32_t BlockManager::cached_length(const Sequence& sequence) const { return find_prefix(sequence).length; }

bool BlockManager::admit(Sequence& sequence) {
  require(sequence.blocks.size() == 0, "a sequence that holds blocks is admitted");
  const Prefix prefix = find_prefix(sequence);
  if (!has_room(sequence, prefix)) return false;
  const size_t shared = prefix.blocks.size();
  for (const int32_t id : prefix.blocks) {
    pool_.hold(id);
    sequence.blocks.append(id);
  }
  sequence.chain = prefix.chain;
  sequence.num_cached = prefix.length;
  sequence.num_computed = sequence.computed_with(prefix.length);
  const int32_t partial_window = prefix.partial < 0 ? -1 : windows_.of(prefix.partial);
  windows_.share(sequence, shared);
  hold_new(sequence, blocks_for(sequence.num_inputs(), block_size_) - shared);
  windows_.cover(sequence, sequence.num_computed + 1);
  if (prefix.partial < 0) return true;
  const auto copy = [&](int32_t from, const BlockTable& to, std::vector<BlockCopy>& copies) {
    if (from >= 0 && from != to[shared]) copies.push_back({from, to[shared]});
  };
  copy(prefix.partial, sequence.blocks, copies_);
  copy(partial_window, sequence.window_blocks, window_copies_);
  return true;
}

bool BlockManager::has_room(const Sequence& sequence, const Prefix& prefix) const {
  const size_t shared = prefix.blocks.size(), fresh = blocks_for(sequence.num_inputs(), block_size_) - shared;
  const auto from_free = std::ranges::count_if(prefix.blocks, [&](int32_t id) { return pool_.is_free(id); });
  const uint32_t computed = sequence.computed_with(prefix.length);
  return fresh + static_cast<size_t>(from_free) <= pool_.num_free() &&
         windows_.has_room(prefix.blocks, computed, computed / block_size_ < shared ? 0 : 1);
}

bool BlockManager::grow(Sequence& sequence) {
  const Lack lack = missing(sequence);
  if (!has(lack)) return false;
  hold_new(sequence, lack.blocks);
  windows_.cover(sequence, sequence.planned_tokens());
  return true;
}

BlockManager::Lack BlockManager::missing(const Sequence& sequence) const {
  const uint32_t tokens = sequence.planned_tokens();
  return {blocks_for(tokens, block_size_) - sequence.blocks.size(), windows_.missing(sequence, tokens)};
}

void BlockManager::leave_behind(Sequence& sequence) {
  windows_.leave_behind(sequence);
  answered(last_answered_);
}

void BlockManager::publish(Sequence& sequence) {
  if (!keeps(sequence)) return;
  PrefixChain& chain = sequence.chain;
  for (; (chain.blocks + 1) * block_size_ <= sequence.num_computed; ++chain.blocks) {
    const auto tokens = tokens_of(sequence, chain.blocks);
    const uint64_t hash = hash_(chain.hash, tokens);
    const int32_t own = sequence.blocks[chain.blocks];
    const auto [entry, is_new] = published_.try_emplace(hash, own);
    // Other content under this hash: a collision, or a child of a forgotten block.
    if (!is_new && !holds(at(entry->second), chain.serial, tokens)) {
      forget(entry->second);
      published_[hash] = own;
    }
    Block& block = at(published_[hash]);
    if (block.serial == 0) {
      block.serial = ++last_serial_;
      block.parent = chain.serial;
      block.hash = hash;
      block.tokens.assign(tokens.begin(), tokens.end());
      if (sequence.shares_prompt) share(own, chain.serial, tokens);
    }
    chain.hash = hash;
    chain.serial = block.serial;
  }
  const uint32_t prompt = sequence.num_prompt_tokens;
  if (!sequence.shares_prompt || sequence.num_computed < prompt) return;
  if (const auto tail = tail_of(sequence, prompt); !tail.empty())
    if (const int32_t own = sequence.blocks[chain.blocks]; at(own).tokens.empty())
      share(own, chain.serial, tail);
}

// Others may read the block's first tokens, which follow those of the chain with this serial.
void BlockManager::share(int32_t id, uint64_t parent, std::span<const int32_t> tokens) {
  Block& block = at(id);
  block.parent = parent;
  block.tokens.assign(tokens.begin(), tokens.end());
  if (!std::exchange(block.shared, true)) shared_.emplace(parent, id);
}

// Behind the published blocks, in the next one.
std::span<const int32_t> BlockManager::tail_of(const Sequence& sequence, size_t end) const {
  const size_t begin = sequence.chain.blocks * block_size_;
  end = std::min(end, begin + block_size_);
  return std::span(sequence.tokens).subspan(std::min(begin, end), end - std::min(begin, end));
}

void BlockManager::release(Sequence& sequence, uint64_t last_step_in_flight) {
  const std::span<const int32_t> ids = sequence.blocks.ids();
  if (const auto tail = tail_of(sequence, sequence.num_computed); sequence.shares_prompt && !tail.empty())
    if (const int32_t own = ids[sequence.chain.blocks]; at(own).serial == 0)
      share(own, sequence.chain.serial, tail);
  windows_.release(sequence, last_step_in_flight);
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) pool_.drop(*id, last_step_in_flight);
  sequence.blocks.clear();
  sequence.chain = {};
  sequence.num_computed = 0;
  answered(last_answered_);
}

// Blocks that nobody can find go to the front and are reused first. Published ones go to the back in the order of
// their release, which reuses the tail of a chain before its head.
void BlockManager::answered(uint64_t step) {
  last_answered_ = step;
  const auto is_found = [&](int32_t id) { return !at(id).tokens.empty(); };
  pool_.answered(step, is_found);
  windows_.answered(step, is_found);
}

void BlockManager::hold_new(Sequence& sequence, size_t count) {
  for (; count > 0; --count) {
    const int32_t id = pool_.next();
    forget(id);
    windows_.detach(id);
    pool_.hold(id);
    sequence.blocks.append(id);
  }
}

void BlockManager::forget(int32_t id) {
  Block& block = at(id);
  if (block.serial != 0) published_.erase(block.hash);
  const auto [first, last] = shared_.equal_range(block.parent);
  if (block.shared)
    shared_.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == id; }));
  block.serial = 0;
  block.shared = false;
  block.tokens.clear();
}

// The parent's serial identifies the whole prefix: a hash collision costs a hit and can
// never give a wrong one.
bool BlockManager::holds(const Block& block, uint64_t parent, std::span<const int32_t> tokens) const {
  return block.parent == parent && std::ranges::equal(block.tokens, tokens);
}

std::span<const int32_t> BlockManager::tokens_of(const Sequence& sequence, size_t index) const {
  return std::span(sequence.tokens).subspan(index * block_size_, block_size_);
}

BlockManager::Prefix BlockManager::find_prefix(const Sequence& sequence) const {
  Prefix found;
  const size_t most = keeps(sequence) && !published_.empty() ? sequence.most_cached() / block_size_ : 0;
  PrefixChain& chain = found.chain;
  for (; chain.blocks < most; ++chain.blocks) {
    const auto tokens = tokens_of(sequence, chain.blocks);
    const uint64_t hash = hash_(chain.hash, tokens);
    const auto hit = published_.find(hash);
    if (hit == published_.end() || !holds(at(hit->second), chain.serial, tokens)) break;
    found.blocks.push_back(hit->second);
    chain.hash = hash;
    chain.serial = at(hit->second).serial;
  }
  found.length = static_cast<uint32_t>(found.blocks.size()) * block_size_;
  if (sequence.shares_prompt) find_partial(sequence, found);
  while (!suits(sequence, found)) shorten(found);
  return found;
}

// Whether windows find what they see of it.
bool BlockManager::suits(const Sequence& sequence, const Prefix& prefix) const {
  return windows_.suits(prefix.blocks, sequence.computed_with(prefix.length)) &&
         (prefix.partial < 0 || windows_.suits({&prefix.partial, 1}, 0));
}

// By what it has of its last block.
void BlockManager::shorten(Prefix& prefix) const {
  if (std::exchange(prefix.partial, -1) < 0) prefix.blocks.pop_back();
  const size_t blocks = prefix.blocks.size();
  prefix.length = static_cast<uint32_t>(blocks) * block_size_;
  prefix.chain = {};
  if (blocks == 0) return;
  const Block& last = at(prefix.blocks.back());
  prefix.chain = {blocks, last.hash, last.serial};
}

// The longest beginning that a block has.
void BlockManager::find_partial(const Sequence& sequence, Prefix& found) const {
  const uint32_t begin = found.length, most = std::min(sequence.most_cached() - begin, block_size_);
  const auto wanted = std::span(sequence.tokens).subspan(begin, most);
  const auto [first, last] = shared_.equal_range(found.chain.serial);
  for (auto entry = first; entry != last; ++entry) {
    const std::vector<int32_t>& tokens = at(entry->second).tokens;
    const auto common = static_cast<uint32_t>(std::ranges::mismatch(wanted, tokens).in1 - wanted.begin());
    if (begin + common <= found.length) continue;
    found.length = begin + common;
    found.partial = entry->second;
  }
}

}  // namespace maniple
