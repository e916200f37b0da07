// Paged attention and the rotary + KV store, for every instruction path of the CPU backend. Contracts as in
// kernels/ops.hpp.
#pragma once

#include <kernels/cpu/path_kernels.hpp>
#include <kernels/cpu/thread_pool.hpp>
#include <kernels/ops.hpp>

namespace maniple::cpu {

void rotary_store(ThreadPool& pool, const PathKernels& path, ConstTensorView qkv, const HeadLayout& heads,
                  const HeadNorms& norms, ConstTensorView cos_sin, const AttentionBatch& batch,
                  TensorView queries, const KvPages& pages);
void attention(ThreadPool& pool, const PathKernels& path, const AttentionCall& call);

}  // namespace maniple::cpu
