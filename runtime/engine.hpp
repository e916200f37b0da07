// Requests in, tokens out: one Engine on every rank of the job. Constructing it agrees on the model, makes
// the backend and the groups, loads the weights and sizes the KV cache; rank 0 then runs requests while every
// rank (rank 0 too) obeys.
#pragma once

#include <kernels/backend.hpp>
#include <layers/models/model_config.hpp>
#include <parallel/process_grid.hpp>
#include <parallel/world.hpp>
#include <runtime/agreement.hpp>
#include <runtime/control/coordinator.hpp>
#include <runtime/control/pulse.hpp>
#include <runtime/requests.hpp>
#include <runtime/shared_model.hpp>
#include <runtime/tokenizer/tokenizer.hpp>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

// Levels of reproducibility (README): independent of who shares the batch; also of the grid.
enum class Repro : uint8_t { off, batch, grid };

struct EngineOptions {
  std::filesystem::path model;
  int tensor_size = 1;
  DType dtype = DType::bf16;  // of weights, activations and KV cache; fp16 on GPUs only
  BackendOptions backend;
  bool random_weights = false;
  uint64_t seed = 0;  // of random weights
  uint32_t block_size = 256;
  std::optional<size_t>
      kv_memory;  // bytes a rank; absent: a full batch of longest sequences, within free memory
  double gpu_memory_utilization = 0.9;  // of the whole GPU, by whomever
  bool share_gpus = false;              // ranks may use the same GPU
  uint32_t max_num_seqs = 256;
  uint32_t max_num_batched_tokens = 2048;
  std::optional<uint32_t> max_model_len;  // absent: the model's
  bool prefix_cache = true;
  // Steps planned before the results of earlier ones; absent: 1 where the device works beside the host.
  std::optional<uint32_t> run_ahead;
  bool eager = false;  // no graphs
  Repro repro = Repro::grid;
};

// What the banner and the record of a run say.
struct EngineInfo {
  GridSize grid;
  std::string architecture;
  std::string backend;            // "cpu, 2 threads, avx512_bf16"
  std::vector<std::string> gpus;  // UUIDs by rank; empty ones without
  std::string attention;          // "tensor cores"; empty where the backend says it all
  DType dtype = DType::bf16;
  uint32_t block_size = 0;
  uint32_t num_blocks = 0;  // of each rank: the smallest count of any
  uint32_t max_model_len = 0;
  size_t weight_bytes = 0;  // of this rank
  double load_seconds = 0;
  size_t num_graphs = 0;  // of decode steps, by batch size
  double capture_seconds = 0;
  Repro repro = Repro::grid;  // in force: `batch` where the tensor size does not divide the reduction slices,
                              // `off` on GPUs
};

// The best instruction path that every rank has: the path decides the last bits, so it is one for the job.
// Collective.
CpuPath common_cpu_path(World& world);
// For `automatic` cuda where every rank sees a GPU, else cpu: one kind for the job. Collective.
BackendKind common_backend(World& world, BackendKind asked);

// Where a rank's time went, in seconds.
struct RankTimes {
  double load = 0;
  double prefill = 0;
  double decode = 0;
  double communication = 0;  // within prefill and decode: waiting for and talking to the tensor group
  double idle = 0;           // waiting for plans
};

struct RunSummary {
  size_t requests = 0;
  size_t failed = 0;
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;
  size_t completion_tokens = 0;
  size_t preemptions = 0;
  double seconds = 0;
  bool interrupted = false;
  std::vector<RankTimes> ranks;
};

struct Progress {
  size_t finished = 0;
  size_t failed = 0;
  size_t running = 0;
  size_t waiting = 0;
  double prefill_tokens_per_second = 0;  // since the last report
  double decode_tokens_per_second = 0;
  size_t completion_tokens = 0;
  std::optional<Stall> stall;
};

class Engine {
 public:
  // Collective. When any rank cannot go on, all end by AgreedError or SilentExit (runtime/agreement.hpp).
  // `pulse` is kept up to date for a Health that the caller runs.
  Engine(World& world, const EngineOptions& options, SharedModel model, Pulse& pulse);
  Engine(World& world, const EngineOptions& options, Pulse& pulse)
      : Engine(world, options, share_model(world, options.model), pulse) {}
  ~Engine();

  const EngineInfo& info() const;
  const ModelConfig& config() const;
  const GenerationConfig& generation_config() const;
  const Tokenizer* tokenizer() const;  // rank 0; null where the model has none
  std::vector<int32_t> stop_token_ids() const;

  // Rank 0: serves the source until it is dry and all has ended, or `interrupt` becomes non-zero. on_progress
  // is called about twice a second, also when nothing finished. The other ranks call obey(), which returns
  // this rank's times. Both return when rank 0 says stop.
  RunSummary run(RequestSource& source, CompletionSink& sink,
                 const std::function<void(const Progress&)>& on_progress, const std::atomic<int>& interrupt);
  RankTimes obey();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace maniple
