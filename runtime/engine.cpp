#include <layers/models/model.hpp>
#include <runtime/checkpoint/weight_loader.hpp>
#include <runtime/completion_builder.hpp>
#include <runtime/control/coordinator.hpp>
#include <runtime/control/health.hpp>
#include <runtime/control/worker.hpp>
#include <runtime/device_choice.hpp>
#include <runtime/engine.hpp>
#include <runtime/execution/model_runner.hpp>
#include <runtime/execution/timed_communicator.hpp>

#include <algorithm>
#include <exception>
#include <thread>

namespace maniple {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

CpuPath common_cpu_path(World& world) {
  uint32_t mine = 0;
  for (const CpuPath path : available_cpu_paths()) mine |= 1u << static_cast<int>(path);
  uint32_t common = mine;
  for (const uint32_t theirs : gather_values(world, mine)) common &= theirs;
  for (const CpuPath path : available_cpu_paths())
    if (common & (1u << static_cast<int>(path))) return path;
  return CpuPath::portable;
}

BackendKind common_backend(World& world, BackendKind asked) {
  const std::vector<int> visible = gather_values(world, visible_gpus());
  if (asked != BackendKind::automatic) return asked;
  const bool everywhere = std::ranges::all_of(visible, [](int count) { return count > 0; });
  return everywhere ? BackendKind::cuda : BackendKind::cpu;
}

namespace {

// The sizes that both the options and the model allow.
uint32_t agreed_model_len(const EngineOptions& options, const ModelConfig& config) {
  const auto longest = static_cast<uint32_t>(config.max_position_embeddings);
  if (options.max_model_len && *options.max_model_len > longest)
    fail(ExitCode::usage,
         "--max-model-len {} is longer than the model's {} positions; use --max-model-len {} or less",
         *options.max_model_len, longest, longest);
  return options.max_model_len.value_or(longest);
}

// About what a captured decode step takes of a GPU's memory.
constexpr size_t graph_bytes = size_t{4} << 20;

// Blocks of this rank. Without --kv-memory: what the largest batch can use, within what it may take.
uint32_t affordable_blocks(const EngineOptions& options, const RunnerLimits& limits, size_t block_bytes,
                           size_t may_take) {
  const size_t useful = size_t{limits.max_num_seqs} * static_cast<size_t>(limits.batch().max_blocks);
  const size_t memory = options.kv_memory.value_or(may_take);
  const size_t blocks = options.kv_memory ? memory / block_bytes : std::min(useful, memory / block_bytes);
  if (blocks == 0)
    fail(ExitCode::preflight,
         "the KV cache has room for no block: a block of {} tokens takes {} bytes, {} are there; use {}",
         limits.block_size, block_bytes, memory,
         options.kv_memory ? "a larger --kv-memory or a smaller --block-size"
                           : "fewer ranks a node, or a larger --gpu-memory-utilization of GPUs");
  return static_cast<uint32_t>(std::min<size_t>(blocks, INT32_MAX / limits.block_size));
}

// Rates between two reports, and the counts of a run.
class Meter {
 public:
  void prompt(size_t tokens) { prompt_ += tokens; }
  void token() { ++decoded_; }
  bool due() const { return seconds_since(last_) >= 0.5; }
  void report(Progress& progress) {
    const double seconds = seconds_since(last_);
    progress.prefill_tokens_per_second = static_cast<double>(std::exchange(prompt_, 0)) / seconds;
    progress.decode_tokens_per_second = static_cast<double>(std::exchange(decoded_, 0)) / seconds;
    last_ = Clock::now();
  }

 private:
  Clock::time_point last_ = Clock::now();
  size_t prompt_ = 0;
  size_t decoded_ = 0;
};

}  // namespace

struct Engine::Parts {
  Parts(World& all_ranks, const EngineOptions& engine_options, SharedModel shared, Pulse& where)
      : world(all_ranks),
        options(engine_options),
        grid(ProcessGrid::of(world.size(), options.tensor_size)),
        pulse(where),
        shared_model(std::move(shared)) {}
  ~Parts() {
    if (std::uncaught_exceptions() > 0) world.abort_groups();
  }

  // In order of construction; each depends on those above.
  World& world;
  EngineOptions options;
  ProcessGrid grid;
  Pulse& pulse;
  EngineInfo info;
  SharedModel shared_model;
  const ModelConfig& config = shared_model.config;
  std::optional<Tokenizer> tokenizer;  // rank 0
  std::vector<int32_t> stop_token_ids;
  RunnerLimits limits;
  Backend backend;
  std::unique_ptr<TimedCommunicator> tensor_group;
  std::unique_ptr<Model> model;
  KvGeometry kv;
  std::vector<uint32_t> blocks_of_replicas;
  std::unique_ptr<ModelRunner> runner;
  Channel channel;
  double load_seconds = 0;

  TensorRank tensor_rank() const { return {grid.position(world.rank()).tensor, grid.size().tensor}; }
  bool reports() const { return grid.reporter(grid.position(world.rank()).data) == world.rank(); }

  void read_configs();
  void choose_device();
  void make_backend_and_groups();
  std::vector<WeightNeeds> needs_of_ranks() const;
  void load();
  bool captures_graphs() const;
  size_t bytes_of_graphs() const;
  size_t ranks_with_my_memory() const;
  void size_kv_cache();
  void capture_graphs();
  void describe();

  SchedulerConfig scheduler_config() const;
  WorkerTimes work();
  RunSummary coordinate(RequestSource& source, CompletionSink& sink,
                        const std::function<void(const Progress&)>& on_progress,
                        const std::atomic<int>& interrupt, const std::atomic<bool>& worker_failed);
  std::optional<std::string> reason_to_refuse(const GenerationRequest& request) const;
  std::vector<RankTimes> gather_times(const WorkerTimes& times);
};

Engine::Engine(World& world, const EngineOptions& options, SharedModel model, Pulse& pulse) {
  agree(world, [&] { ProcessGrid::of(world.size(), options.tensor_size); });
  parts_ = std::make_unique<Parts>(world, options, std::move(model), pulse);
  agree(world, [this] { parts_->read_configs(); });
  parts_->choose_device();
  parts_->make_backend_and_groups();
  parts_->load();
  parts_->size_kv_cache();
  parts_->capture_graphs();
  parts_->describe();
  world.barrier();
}

Engine::~Engine() = default;

void Engine::Parts::read_configs() {
  limits = {options.max_num_seqs, options.max_num_batched_tokens, agreed_model_len(options, config),
            options.block_size};
  if (options.max_num_batched_tokens < options.max_num_seqs)
    fail(ExitCode::usage,
         "--max-num-batched-tokens {} is below --max-num-seqs {}, but every running sequence takes a token a "
         "step",
         options.max_num_batched_tokens, options.max_num_seqs);
  if (world.rank() != 0) return;
  std::optional<int32_t> end_of_turn;
  const ModelFiles& files = *shared_model.files;
  if (files.has("tokenizer.json")) {
    tokenizer = read_tokenizer(files);
    if (const std::optional<std::string> token = read_eos_token(files))
      end_of_turn = tokenizer->token_id(*token);
  }
  stop_token_ids =
      union_of_eos(config.eos_token_ids, shared_model.generation_config.eos_token_ids, end_of_turn);
}

// One kind for all ranks.
void Engine::Parts::choose_device() {
  options.backend.kind = common_backend(world, options.backend.kind);
  if (options.backend.kind != BackendKind::cuda) return;
  agree(world, [&] {
    const Place& place = world.places()[static_cast<size_t>(world.rank())];
    options.backend.gpu = choose_gpu(visible_gpus(), place, options.share_gpus);
  });
}

void Engine::Parts::make_backend_and_groups() {
  if (options.backend.cpu_path == CpuPath::automatic) options.backend.cpu_path = common_cpu_path(world);
  agree(world, [this] {
    backend = make_backend(options.backend);
    model = make_model(config, tensor_rank());
  });
  const std::string uuid = backend.device->uuid();
  for (const auto& bytes : world.all_gather_bytes(std::as_bytes(std::span(uuid))))
    info.gpus.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  agree(world, [this] {
    if (!options.share_gpus) refuse_shared_gpus(info.gpus, world.places());
  });
  tensor_group = std::make_unique<TimedCommunicator>(
      world.make_group(grid.tensor_group(world.rank()), *backend.ops), *backend.device, pulse.waits);
  channel = world.make_channel();
}

// Of all tensor ranks: models that are made, and not loaded, cost nothing.
std::vector<WeightNeeds> Engine::Parts::needs_of_ranks() const {
  std::vector<WeightNeeds> needs;
  for (int rank = 0; rank < grid.size().tensor; ++rank)
    needs.push_back(needs_of(*make_model(config, {rank, grid.size().tensor})));
  return needs;
}

void Engine::Parts::load() {
  const Clock::time_point start = Clock::now();
  pulse.phase = Phase::load;
  WeightIndex index;
  std::vector<ReadRound> plan;
  std::vector<std::vector<int>> replicas;
  for (int data = 0; data < grid.size().data; ++data) replicas.push_back(grid.replica(data));
  if (!options.random_weights) index = share_index(world, shared_model);
  agree(world, [&] {
    if (!options.random_weights) {
      check_names(*model, index);
      plan = plan_reads(needs_of_ranks(), index, grid.size().data);
    }
    info.weight_bytes = make_weights(*model, *backend.ops, options.dtype);
    if (options.random_weights) fill_with_random(*model, *backend.ops, options.seed, pulse.layer);
  });
  if (!options.random_weights)
    agree(world,
          [&] { load_weights(*model, *backend.ops, index, plan, world.transport(), replicas, pulse.layer); });
  pulse.layer = 0;
  model->prepare(*backend.ops, limits.max_model_len);
  load_seconds = seconds_since(start);
}

bool Engine::Parts::captures_graphs() const {
  return !options.eager && backend.device->captures() && tensor_group->captures();
}

size_t Engine::Parts::bytes_of_graphs() const {
  return captures_graphs() ? graph_bytes * decode_buckets(limits.max_num_seqs).size() : 0;
}

// Of this node: all, or those with the same GPU.
size_t Engine::Parts::ranks_with_my_memory() const {
  const auto me = static_cast<size_t>(world.rank());
  size_t count = 0;
  for (size_t rank = 0; rank < info.gpus.size(); ++rank)
    if (world.places()[rank].node == world.places()[me].node && info.gpus[rank] == info.gpus[me]) ++count;
  return count;
}

void Engine::Parts::size_kv_cache() {
  const HeadLayout heads = model->heads();
  kv = {model->num_layers(), heads.kv_heads, heads.head_dim, limits.block_size, options.dtype};
  world.barrier();  // all weights are in memory: what is free now is for the cache
  uint32_t mine = 0;
  agree(world, [&] {
    const size_t scratch = dry_run(*model, *backend.ops, limits, options.dtype, config.vocab_size,
                                   tensor_rank().rank, tensor_rank().size);
    const MemoryState memory{.total = backend.device->total_memory(),
                             .free = backend.device->free_memory(),
                             .reserved = scratch + bytes_of_graphs(),
                             .sharers = ranks_with_my_memory()};
    mine = affordable_blocks(options, limits, kv.block_bytes(),
                             cache_memory(memory, options.gpu_memory_utilization));
  });
  blocks_of_replicas.assign(static_cast<size_t>(grid.size().data), UINT32_MAX);
  const std::vector<uint32_t> all = gather_values(world, mine);
  for (int rank = 0; rank < world.size(); ++rank) {
    uint32_t& smallest = blocks_of_replicas[static_cast<size_t>(grid.position(rank).data)];
    smallest = std::min(smallest, all[static_cast<size_t>(rank)]);
  }
  agree(world, [&] {
    const uint32_t blocks = blocks_of_replicas[static_cast<size_t>(grid.position(world.rank()).data)];
    runner = std::make_unique<ModelRunner>(*model, *backend.ops, *tensor_group, limits, kv, blocks,
                                           options.dtype, config.vocab_size, pulse.layer);
  });
}

void Engine::Parts::capture_graphs() {
  const Clock::time_point start = Clock::now();
  agree(world, [&] {
    if (captures_graphs()) runner->capture_decodes();
  });
  info.num_graphs = runner->num_graphs();
  info.capture_seconds = seconds_since(start);
}

void Engine::Parts::describe() {
  const bool slices_divide =
      reduction_slices(config.num_heads * config.head_dim, grid.size().tensor).independent_of_parts &&
      reduction_slices(config.intermediate_size, grid.size().tensor).independent_of_parts &&
      vocabulary_chunks % grid.size().tensor == 0;
  info.grid = grid.size();
  info.architecture = config.architecture;
  info.backend = backend.device->description();
  info.attention = backend.ops->attention_path(options.dtype, config.head_dim);
  info.dtype = options.dtype;
  info.block_size = limits.block_size;
  info.num_blocks = *std::min_element(blocks_of_replicas.begin(), blocks_of_replicas.end());
  info.max_model_len = limits.max_model_len;
  info.load_seconds = load_seconds;
  info.repro = options.repro == Repro::grid && !slices_divide ? Repro::batch : options.repro;
  if (!backend.device->shares_host_memory()) info.repro = Repro::off;
}

SchedulerConfig Engine::Parts::scheduler_config() const {
  SchedulerConfig scheduler;
  scheduler.max_num_seqs = limits.max_num_seqs;
  scheduler.max_num_batched_tokens = limits.max_num_batched_tokens;
  scheduler.max_model_len = limits.max_model_len;
  scheduler.block_size = limits.block_size;
  scheduler.prefix_cache = options.prefix_cache;
  scheduler.eos_token_ids = stop_token_ids;
  scheduler.run_ahead = options.run_ahead.value_or(backend.device->shares_host_memory() ? 0 : 1);
  return scheduler;
}

WorkerTimes Engine::Parts::work() {
  const StepRunner steps{[this](const StepPlan& plan) { runner->launch(plan); },
                         [this] { return runner->ready(); }, [this] { return runner->collect(); }};
  return obey_plans(*channel.leaf, reports(), steps, pulse);
}

std::optional<std::string> Engine::Parts::reason_to_refuse(const GenerationRequest& request) const {
  for (const int32_t id : request.prompt)
    if (id < 0 || id >= config.vocab_size)
      return fmt::format("token id {} is not in the vocabulary (0 to {})", id, config.vocab_size - 1);
  if (!request.stop.empty() && !tokenizer)
    return "stop strings need a tokenizer, and the model has none; use stop_token_ids";
  return invalid_reason(request.sampling);
}

RunSummary Engine::Parts::coordinate(RequestSource& source, CompletionSink& sink,
                                     const std::function<void(const Progress&)>& on_progress,
                                     const std::atomic<int>& interrupt,
                                     const std::atomic<bool>& worker_failed) {
  Coordinator coordinator(*channel.center, grid, scheduler_config(), blocks_of_replicas);
  CompletionBuilder builder(tokenizer ? &*tokenizer : nullptr);
  RunSummary summary;
  Meter meter;
  bool dry = false;

  const auto refuse = [&](const GenerationRequest& request, const std::string& reason) {
    Completion refused;
    refused.id = request.id;
    refused.error = reason;
    ++summary.failed;
    sink.finished(std::move(refused));
  };
  const auto admit = [&](const GenerationRequest& request) {
    ++summary.requests;
    if (const std::optional<std::string> reason = reason_to_refuse(request)) return refuse(request, *reason);
    if (const std::optional<Rejection> rejection =
            coordinator.add({request.id, request.prompt, request.sampling}))
      return refuse(request, rejection->reason);
    summary.prompt_tokens += request.prompt.size();
    meter.prompt(request.prompt.size());
    builder.open(request);
  };
  const auto on_token = [&](const TokenEvent& event) {
    meter.token();
    ++summary.completion_tokens;
    std::optional<Completion> completion = builder.take(event);
    if (!completion) return;
    if (event.finish_reason == FinishReason::none) coordinator.finish(event.request, FinishReason::stop);
    sink.finished(std::move(*completion));
  };
  const auto on_start = [&](RequestId request) { sink.started(request); };
  const auto report = [&] {
    const SchedulerCounts counts = coordinator.counts();
    Progress progress;
    progress.failed = summary.failed;
    progress.running = counts.running;
    progress.waiting = counts.waiting;
    progress.finished = summary.requests - counts.running - counts.waiting;
    progress.completion_tokens = summary.completion_tokens;
    progress.stall = coordinator.stall();
    meter.report(progress);
    on_progress(progress);
  };

  const Clock::time_point start = Clock::now();
  std::exception_ptr failure;
  try {
    Backoff backoff;
    while (!interrupt && !worker_failed && (!dry || coordinator.has_work())) {
      ++pulse.turns;
      while (!interrupt && !dry && coordinator.wants_requests() && source.ready()) {
        ++pulse.turns;
        std::optional<GenerationRequest> request = source.next();
        if (request)
          admit(*request);
        else
          dry = true;
      }
      if (coordinator.advance(on_token, on_start))
        backoff.reset();
      else
        backoff.pause();
      if (meter.due()) report();
    }
    if (interrupt && coordinator.has_work()) sink.stopping();
  } catch (...) {
    failure = std::current_exception();
  }
  pulse.turns = 0;
  if (!worker_failed) coordinator.stop();
  if (failure) std::rethrow_exception(failure);

  const SchedulerCounts counts = coordinator.counts();
  summary.interrupted = interrupt != 0 && (!dry || coordinator.has_work());
  summary.cached_tokens = counts.cached_tokens;
  summary.preemptions = counts.preemptions;
  summary.seconds = seconds_since(start);
  return summary;
}

std::vector<RankTimes> Engine::Parts::gather_times(const WorkerTimes& times) {
  pulse.phase = Phase::end;
  return gather_values(
      world, RankTimes{load_seconds, times.prefill, times.decode, tensor_group->seconds(), times.idle});
}

const EngineInfo& Engine::info() const { return parts_->info; }
const ModelConfig& Engine::config() const { return parts_->config; }
const GenerationConfig& Engine::generation_config() const { return parts_->shared_model.generation_config; }
const Tokenizer* Engine::tokenizer() const { return parts_->tokenizer ? &*parts_->tokenizer : nullptr; }
std::vector<int32_t> Engine::stop_token_ids() const { return parts_->stop_token_ids; }

RunSummary Engine::run(RequestSource& source, CompletionSink& sink,
                       const std::function<void(const Progress&)>& on_progress,
                       const std::atomic<int>& interrupt) {
  RunSummary summary;
  std::optional<Error> failure;
  std::atomic<bool> worker_failed = false;
  std::jthread coordinator([&] {
    try {
      summary = parts_->coordinate(source, sink, on_progress, interrupt, worker_failed);
    } catch (const Error& error) {
      failure = error;
    } catch (const std::exception& error) {
      failure = Error(ExitCode::internal, error.what());
    }
  });
  WorkerTimes times;
  try {
    times = parts_->work();
  } catch (...) {
    worker_failed = true;
    throw;
  }
  coordinator.join();
  const std::vector<RankTimes> ranks = parts_->gather_times(times);
  if (failure) throw AgreedError(*failure);
  summary.ranks = ranks;
  return summary;
}

RankTimes Engine::obey() {
  return parts_->gather_times(parts_->work())[static_cast<size_t>(parts_->world.rank())];
}

}  // namespace maniple
