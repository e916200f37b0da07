// What an engine is asked for: plain data, constant once it is read. What is in force is in JobPlan and RankPlace.
#pragma once

#include <kernels/backend.hpp>
#include <parallel/host_communicator.hpp>
#include <runtime/scheduling/scheduler.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace maniple {

// Levels of reproducibility (README). batch: results do not depend on the other requests of a batch. grid:
// nor on the grid of ranks.
enum class Repro : uint8_t { off, batch, grid };
inline std::string_view name_of(Repro repro) {
  constexpr std::array<std::string_view, 3> names = {"off", "batch", "grid"};
  return names[static_cast<size_t>(repro)];
}

struct EngineOptions {
  std::filesystem::path model;
  int tensor_size = 1;
  int pipeline_size = 1;
  int context_size = 1;
  std::optional<int> expert_size;        // ranks that hold other experts; absent: by their number
  std::vector<int64_t> pipeline_layers;  // of each stage; empty: by their costs
  // Of weights and activations; fp16 on GPUs only. Absent: fp16 for an fp16 checkpoint on GPUs, else bf16.
  std::optional<DType> dtype;
  std::optional<DType> kv_cache_dtype;   // fp8 or dtype; absent: fp8 where the checkpoint asks for it
  BackendChoice backend;                 // the same kind on all ranks; instruction path: what all ranks have
  std::optional<int> threads;            // of each rank; absent: its CPUs / ranks that share them
  std::optional<WeightFormat> quantize;  // a checkpoint in floating point, while it is loaded
  bool random_weights = false;
  uint64_t seed = 0;  // of random weights
  uint32_t block_size = 256;
  // Bytes per rank; absent: a full batch of longest sequences, within free memory.
  std::optional<size_t> kv_memory;
  std::optional<uint32_t> kv_blocks;    // per rank, in place of kv_memory
  double gpu_memory_utilization = 0.9;  // of the whole GPU, other processes included
  AllReduce all_reduce = AllReduce::automatic;
  bool share_gpus = false;  // ranks may use the same GPU
  uint32_t max_num_seqs = 256;
  uint32_t max_num_batched_tokens = 2048;
  std::optional<uint32_t> max_model_len;  // absent: the model's
  bool prefix_cache = true;
  Policy schedule = Policy::mixed;
  // Steps planned and not yet answered; absent: 1 on CPUs, 2 on GPUs, which work while the host plans; with a
  // pipeline one more than its stages.
  std::optional<uint32_t> steps_in_flight;
  bool eager = false;  // no graphs
  std::optional<Repro>
      repro;  // absent: the highest that the sizes allow; `grid` is refused where they do not
};

}  // namespace maniple
