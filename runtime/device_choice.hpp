// Which backend and device the ranks of a job use, and how much memory a rank's KV cache may take.
#pragma once

#include <kernels/attention_batch.hpp>
#include <kernels/backend.hpp>
#include <parallel/world.hpp>

#include <string>
#include <vector>

namespace maniple {

class QuantScheme;

// Collective. Resolves `automatic`, alike on all ranks. Kind: cuda if every rank sees a GPU, else cpu. Instruction path: the best that
// every rank has, since the path affects the last bits.
BackendChoice common_backend(World& world, BackendChoice asked);

// The index of the rank's GPU among its visible GPUs. A rank sees its own GPU alone, or all GPUs of the node.
// Throws Error (preflight) when a rank sees several GPUs but fewer than the node has ranks. With may_share
// the ranks use them in turn instead.
int choose_gpu(int visible, const RankLocation& location, bool may_share);

// Throws Error (preflight), naming two ranks, if two ranks have the same GPU. uuids: by rank,
// empty without GPU.
void refuse_shared_gpus(const std::vector<std::string>& uuids, const std::vector<RankLocation>& locations);

// Throws Error unless attention keeps keys and values so, for activations of this type: input where the checkpoint asks for
// it, else usage.
void refuse_cache(const KvLayout& layout, DType activations, const QuantScheme& scheme);

struct MemoryState {
  size_t total = 0;             // bytes of a GPU; 0: host memory
  size_t free = 0;              // with all weights loaded
  size_t reserved = 0;          // what each rank needs besides weights and cache
  size_t sharers = 1;           // ranks that share the memory
  size_t addresses = SIZE_MAX;  // that a limit of this process leaves
};
// Bytes for the KV cache of a rank, after `reserved` is deducted. Host: its share of three fifths of the free
// memory, or of its addresses if they are less. GPU: its share of what is left of `utilization` of the total.
size_t cache_memory(const MemoryState& memory, double utilization);

}  // namespace maniple
