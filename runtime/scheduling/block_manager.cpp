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

BlockManager::BlockManager(uint32_t num_blocks, uint32_t block_size, bool prefix_cache, HashFunction hash)
    : block_size_(block_size), prefix_cache_(prefix_cache), hash_(hash), blocks_(num_blocks) {
  for (int32_t id = 0; id < static_cast<int32_t>(num_blocks); ++id)
    at(id).where = free_.insert(free_.end(), id);
}

uint32_t BlockManager::cached_length(const Sequence& sequence) const { return find_prefix(sequence).length; }

bool BlockManager::admit(Sequence& sequence) {
  require(sequence.blocks.size() == 0, "a sequence that holds blocks is admitted");
  Prefix prefix = find_prefix(sequence);
  const size_t fresh = blocks_for(sequence.num_inputs(), block_size_) - prefix.blocks.size();
  const auto shared_from_free =
      std::ranges::count_if(prefix.blocks, [&](int32_t id) { return at(id).state == State::free; });
  if (fresh + static_cast<size_t>(shared_from_free) > free_.size()) return false;
  for (const int32_t id : prefix.blocks) {
    hold(id);
    sequence.blocks.append(id);
  }
  sequence.chain = prefix.chain;
  sequence.num_cached = prefix.length;
  sequence.num_computed = std::min(prefix.length, sequence.num_tokens() - 1);
  hold_new(sequence, fresh);
  if (prefix.partial >= 0 && prefix.partial != sequence.blocks[prefix.blocks.size()])
    copies_.push_back({prefix.partial, sequence.blocks[prefix.blocks.size()]});
  return true;
}

bool BlockManager::grow(Sequence& sequence) {
  const size_t fresh = missing(sequence);
  if (fresh > free_.size()) return false;
  hold_new(sequence, fresh);
  return true;
}

size_t BlockManager::missing(const Sequence& sequence) const {
  return blocks_for(sequence.planned_tokens(), block_size_) - sequence.blocks.size();
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
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    Block& block = at(*id);
    require(block.holders > 0, "a block is released that nobody holds");
    if (--block.holders > 0) continue;
    block.free_after_step = last_step_in_flight;
    move(*id, State::pending);
  }
  sequence.blocks.clear();
  sequence.chain = {};
  sequence.num_computed = 0;
  answered(last_answered_);
}

// Blocks that nobody can find go to the front and are reused first. Published ones go to the back in the order of
// their release, which reuses the tail of a chain before its head.
void BlockManager::answered(uint64_t step) {
  last_answered_ = step;
  while (!pending_.empty() && at(pending_.front()).free_after_step <= last_answered_)
    move(pending_.front(), State::free, at(pending_.front()).tokens.empty());
}

std::list<int32_t>& BlockManager::list(State state) {
  return state == State::free ? free_ : state == State::held ? held_ : pending_;
}

void BlockManager::move(int32_t id, State state, bool to_front) {
  Block& block = at(id);
  std::list<int32_t>& to = list(state);
  to.splice(to_front ? to.begin() : to.end(), list(block.state), block.where);
  block.state = state;
}

void BlockManager::hold(int32_t id) {
  if (at(id).holders++ == 0) move(id, State::held);
}

void BlockManager::hold_new(Sequence& sequence, size_t count) {
  for (; count > 0; --count) {
    const int32_t id = free_.front();
    forget(id);
    hold(id);
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
  return found;
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
