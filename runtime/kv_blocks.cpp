// How many KV blocks requests need, and memory holds.
#include <runtime/job_plan.hpp>

#include <algorithm>

namespace maniple {

KvBlocks JobPlan::kv_blocks_of_request() const {
  const size_t blocks = blocks_for(max_model_len, block_tokens);
  return {blocks, window == 0 ? 0 : std::min(blocks, blocks_for(window, block_tokens) + 2)};
}

KvBlocks JobPlan::with_windows(size_t blocks, uint32_t max_num_seqs) const {
  const auto most = static_cast<uint32_t>(std::min<size_t>(blocks, INT32_MAX));
  return {blocks, WindowPool::of(window, block_tokens, max_num_seqs, tokens_in_flight(), most).blocks};
}

KvBlocks JobPlan::kv_blocks(uint32_t max_num_seqs) const {
  return with_windows(max_num_seqs * blocks_for(max_model_len, block_tokens), max_num_seqs);
}

KvBlocks JobPlan::fitting_blocks(const KvGeometry& kv, uint32_t max_num_seqs, size_t memory,
                                 size_t token_bytes) const {
  const size_t block = kv.block_bytes() + token_bytes, both = memory / (block + kv.window_block_bytes()),
               windows = with_windows(SIZE_MAX, max_num_seqs).window_blocks;
  if (both <= windows) return {both, both};
  const size_t left = memory - windows * kv.window_block_bytes();
  return {block > 0 ? left / block : kv_blocks(max_num_seqs).blocks, windows};
}

}  // namespace maniple
