// The layout of pages in the CPU backend: the order in which attention reads them. A layer's bytes hold first the keys, then the
// values, each [block][kv_head][group of 16 positions]. A word is four e4m3, two bf16, or one fp32:
//   keys    [word of the head][16 positions]: a vector of words has one position in each lane, adjacent dimensions in a word
//   values  [word of positions][value_dim]: a vector of words has one dimension in each lane, adjacent positions in a word
// Shared rows lie once, in the order of values. Both are ready to be the right side of a product of bf16 pairs. Of e4m3 elements 0 and 1, and 2 and 3, lie 16 bits apart: a shift
// by 0 or 8 leaves them in the halves of the word.
#pragma once

#include <kernels/attention_batch.hpp>
#include <kernels/cpu/position_group.hpp>

namespace maniple::cpu {

class CpuPages {
 public:
  explicit CpuPages(const KvPages& pages)
      : layout_(pages.layout),
        element_(static_cast<int64_t>(size_of(layout_.dtype))),
        keys_(pages.bytes.data),
        values_(keys_ + (layout_.shared ? 0 : pages.slots() / layout_.block_size * key_block_bytes())) {}

  // Of the keys of a head in a block, of all its keys, of all its values.
  int64_t head_bytes() const { return layout_.block_size * layout_.key_dim * element_; }
  int64_t key_block_bytes() const { return layout_.kv_heads * head_bytes(); }
  int64_t value_block_bytes() const { return layout_.kv_heads * value_head_bytes(); }

  // Where an element lies. The words of a key are position_group words apart, the elements of a value one.
  std::byte* key(int64_t slot, int64_t kv_head, int64_t d = 0) const {
    if (layout_.shared) return value(slot, kv_head, d);
    const int64_t in_word = 4 / element_, offset = slot % layout_.block_size, lane = offset % position_group;
    return keys_ + slot / layout_.block_size * key_block_bytes() + kv_head * head_bytes() +
           (offset - lane) * layout_.key_dim * element_ + (d / in_word * position_group + lane) * 4 +
           in_word_at(d % in_word);
  }
  std::byte* value(int64_t slot, int64_t kv_head, int64_t d = 0) const {
    const int64_t in_word = 4 / element_, offset = slot % layout_.block_size;
    return values_ + slot / layout_.block_size * value_block_bytes() + kv_head * value_head_bytes() +
           (offset / in_word * layout_.value_lanes() + d) * 4 + in_word_at(offset % in_word);
  }

 private:
  int64_t in_word_at(int64_t i) const { return element_ == 1 ? i % 2 * 2 + i / 2 : i * element_; }
  int64_t value_head_bytes() const { return layout_.block_size * layout_.value_lanes() * element_; }

  KvLayout layout_;
  int64_t element_;
  std::byte *keys_, *values_;
};

}  // namespace maniple::cpu
