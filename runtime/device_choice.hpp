// What a job and its ranks compute on, and how much memory a rank's KV cache may take.
#pragma once

#include <kernels/backend.hpp>
#include <parallel/world.hpp>

#include <string>
#include <vector>

namespace maniple {

// The best instruction path that every rank has: the path decides the last bits, so it is one for the job.
// Collective.
CpuPath common_cpu_path(World& world);
// For `automatic` cuda where every rank sees a GPU, else cpu: one kind for the job. Collective.
BackendKind common_backend(World& world, BackendKind asked);

// Index among the visible GPUs. Each rank sees one of its own, or all ranks of the node see all. Throws Error
// (preflight) when there are fewer GPUs than ranks, unless they may share: then in turns.
int choose_gpu(int visible, const RankLocation& location, bool may_share);

// uuids: of the GPU of each rank. Throws Error (preflight) naming two ranks that have the same one.
void refuse_shared_gpus(const std::vector<std::string>& uuids, const std::vector<RankLocation>& locations);

struct MemoryState {
  size_t total = 0;     // 0: the host's, of which the free part counts alone
  size_t free = 0;      // with all weights loaded
  size_t reserved = 0;  // what a rank needs beside weights and cache
  size_t sharers = 1;   // ranks that share it
};
// Bytes for the KV cache of a rank: three fifths of what is free on a host, or what is left of `utilization`
// of the whole of a GPU.
size_t cache_memory(const MemoryState& memory, double utilization);

}  // namespace maniple
