// The KV blocks of one sequence, in order, with a running hash. The scheduler and every rank keep a table for
// each running sequence; a comparison of two hashes takes constant time.
#pragma once

#include <kernels/support/split_mix.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace maniple {

// Mixes value into hash. Detects drift between ranks; not cryptographic.
constexpr uint64_t mix(uint64_t hash, uint64_t value) { return split_mix(hash + value); }

class BlockTable {
 public:
  void append(int32_t block) {
    ids_.push_back(block);
    hash_ = mix(hash_, static_cast<uint64_t>(block));
  }
  void clear() {
    ids_.clear();
    hash_ = 0;
  }
  size_t size() const { return ids_.size(); }
  int32_t operator[](size_t index) const { return ids_[index]; }
  std::span<const int32_t> ids() const { return ids_; }
  uint64_t hash() const { return hash_; }

 private:
  std::vector<int32_t> ids_;
  uint64_t hash_ = 0;
};

constexpr size_t blocks_for(size_t tokens, size_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

}  // namespace maniple
