#include <kernels/support/counted.hpp>
#include <launch/tools/bench/host_step.hpp>
#include <launch/tools/bench/kernels.hpp>
#include <launch/tools/bench/model_shard.hpp>
#include <runtime/collective_phase.hpp>

#include <array>
#include <chrono>

namespace maniple {

using json = nlohmann::ordered_json;

namespace {

constexpr std::array<int64_t, 19> layer_tokens = {1,  2,  3,  4,   6,   8,   12,  16,   24,  32,
                                                  48, 64, 96, 128, 192, 256, 512, 1024, 2048};
constexpr std::array<int64_t, 9> head_rows = {1, 2, 4, 8, 16, 32, 64, 128, 256};
constexpr std::array<int64_t, 4> decode_sequences = {1, 8, 32, 128};
constexpr std::array<int64_t, 3> decode_contexts = {256, 1024, 4096};
constexpr std::array<int64_t, 3> chunks = {128, 512, 2048}, chunk_pasts = {0, 1024, 4096};

std::string name_of(const Kernel& kernel) {
  std::string name = fmt::format("tp {} {} {}", kernel.tensor, name_of(kernel.part), kernel.tokens);
  if (kernel.context > 0) name += fmt::format(" at {}", kernel.context);
  return name;
}

ModelShard::Pass pass_of(ModelShard& shard, const KernelCase& one) {
  switch (one.part) {
    case KernelPart::layer:
      return shard.layers(one.tokens);
    case KernelPart::head:
      return shard.head(one.tokens);
    case KernelPart::decode:
      return shard.attention(one.tokens, 1, one.context - 1);
    case KernelPart::prefill:
    case KernelPart::host:
      break;
  }
  return shard.attention(1, one.tokens, one.context);
}

constexpr int64_t longest = chunk_pasts.back() + chunks.back();

// Attention reads keys and values, and no weights.
StepWork work_of(const KernelCase& one) {
  const auto tokens = static_cast<uint64_t>(one.tokens), context = static_cast<uint64_t>(one.context);
  switch (one.part) {
    case KernelPart::layer:
      return {.steps = 1, .tokens = tokens};
    case KernelPart::head:
      return {.steps = 1, .sampled = tokens};
    case KernelPart::decode:
      return {.context = tokens * context, .attended = tokens * context};
    case KernelPart::prefill:
    case KernelPart::host:
      break;
  }
  return {.context = context + tokens, .attended = tokens * context + tokens * (tokens + 1) / 2};
}

void add_row(BenchJob& job, const Kernel& kernel, const Ceilings& ceilings, BenchResult& result) {
  job.print(table_line(kernel, ceilings));
  result.numbers["rows"].push_back(kernel_json(kernel, ceilings));
  result.evidence.results.push_back({name_of(kernel), kernel.seconds});
  result.kernels.push_back(row_of(kernel));
}

// Collective.
std::optional<Kernel> measure(BenchJob& job, ModelShard& shard, Device& device, int tensor,
                              const KernelCase& one) {
  ModelShard::Pass pass;
  collective_phase(job.world(), [&] { pass = pass_of(shard, one); });
  const auto calls = job.time_calls([&](int count) {
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < count; ++call) pass();
    device.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / count;
  });
  if (!calls) return std::nullopt;
  Kernel kernel{one, tensor};
  kernel.layers = one.part == KernelPart::head ? 1 : shard.num_layers();
  const auto layers = static_cast<double>(kernel.layers);
  const ModelCost& cost = one.part == KernelPart::head ? shard.cost_of_head() : shard.cost_of_layers();
  const Interval seconds = median_interval(calls->seconds);
  kernel.seconds = {seconds.median / layers, seconds.low / layers, seconds.high / layers};
  kernel.flops = flops(cost, work_of(one)) / layers;
  kernel.bytes = bytes_moved(cost, work_of(one)) / layers;
  return kernel;
}

// Collective. One after the other, behind a caption. False after a stop.
bool measure_host(BenchJob& job, Backend& backend, const Ceilings& ceilings, BenchResult& result) {
  World& world = job.world();
  const int tensor = job.options().engine.tensor_size;
  HostStep step(world, tensor, *backend.ops, job.activity());
  const auto replicas = static_cast<uint64_t>(world.size() / tensor);
  job.print(fmt::format(
      "# host: steps of decoding sequences without a model; {} of tp {}; {}, median [95 % CI]\n",
      counted(replicas, "replica"), tensor, counted(static_cast<uint64_t>(job.options().repeats), "repeat")));
  for (const int64_t sequences : decode_sequences) {
    const auto calls = job.time_calls([&](int steps) {
      return step.seconds(static_cast<uint32_t>(sequences), static_cast<uint32_t>(steps));
    });
    if (!calls) return false;
    add_row(job, {{KernelPart::host, sequences}, tensor, 1, median_interval(calls->seconds)}, ceilings,
            result);
  }
  return true;
}

// Collective. Rank r has the part of tensor rank r, as in a job of that tensor size.
std::unique_ptr<ModelShard> make_shard(BenchJob& job, const PlacedJob& placed, int tensor, Backend& backend) {
  World& world = job.world();
  const ModelConfig& config = placed.agreed.model->config;
  std::unique_ptr<ModelShard> shard;
  collective_phase(world, [&] {
    shard = std::make_unique<ModelShard>(config, TensorRank{world.rank() % tensor, tensor},
                                         job.options().engine, placed.agreed.plan,
                                         beyond_caches(world, placed), backend, job.activity().layer);
    job.refuse_too_large(*backend.device,
                         shard->bytes_needed(std::min(longest, config.max_position_embeddings)),
                         fmt::format("parts of tp {}", tensor),
                         "so many layers are made that their weights do not fit in the caches",
                         "a larger size with --shapes-of-tp, or fewer ranks on a node");
    shard->load();
  });
  return shard;
}

// Of one rank, on average.
Ceilings share_of(const Roofline& roofline) {
  const Ceilings sum = roofline.sum();
  const auto ranks = static_cast<double>(roofline.ranks.size());
  return {sum.flops / ranks, sum.read_bytes / ranks};
}

std::string caption(BenchJob& job, const ModelShard& shard, const ModelConfig& config, int tensor,
                    DType type) {
  const int ranks = job.world().size();
  return fmt::format(
      "# tp {}: {} of {} layers, {}, random weights; {}, times of the slowest; {}, median [95 % CI]\n"
      "#{:>8} {:>7} {:>8} {:>10}  {:20} {:>8} {:>8}  {}\n",
      tensor, shard.num_layers(), config.num_layers(), name_of(type),
      ranks == 1 ? "1 rank" : fmt::format("{} ranks at the same time", ranks),
      counted(static_cast<uint64_t>(job.options().repeats), "repeat"), "part", "tokens", "context",
      "time(us)", "[CI]", "GFLOP/s", "GB/s", "of probe");
}

struct Bound {
  double share;
  const char* probe;
};
Bound bound_of(const Kernel& kernel, const Ceilings& ceilings) {
  const double products = kernel.flop_rate() / ceilings.flops,
               reads = kernel.byte_rate() / ceilings.read_bytes;
  return products > reads ? Bound{products, "product"} : Bound{reads, "read"};
}

}  // namespace

std::vector<int> tensor_sizes(const std::vector<uint32_t>& asked, const EngineOptions& engine,
                              BackendChoice backend, const ModelConfig& config) {
  if (asked.empty()) return {engine.tensor_size};
  std::vector<int> sizes(asked.begin(), asked.end());
  for (const int size : sizes) {
    EngineOptions as_if = engine;
    as_if.tensor_size = size;
    plan_job(std::vector<RankLocation>(static_cast<size_t>(size)), as_if, backend, &config);
  }
  return sizes;
}

std::vector<KernelCase> kernel_cases(int64_t max_positions) {
  std::vector<KernelCase> cases;
  for (const int64_t tokens : layer_tokens) cases.push_back({KernelPart::layer, tokens});
  for (const int64_t rows : head_rows) cases.push_back({KernelPart::head, rows});
  for (const int64_t context : decode_contexts)
    for (const int64_t sequences : decode_sequences)
      if (context <= max_positions) cases.push_back({KernelPart::decode, sequences, context});
  for (const int64_t past : chunk_pasts)
    for (const int64_t chunk : chunks)
      if (past + chunk <= max_positions) cases.push_back({KernelPart::prefill, chunk, past});
  return cases;
}

std::string table_line(const Kernel& kernel, const Ceilings& ceilings) {
  if (kernel.part == KernelPart::host)
    return fmt::format("{:>9} {:>7} {:>8} {:>10}  {:20} {:>8} {:>8}  -\n", name_of(kernel.part),
                       kernel.tokens, "-", microseconds(kernel.seconds.median), microseconds(kernel.seconds),
                       "-", "-");
  const bool attends = kernel.part == KernelPart::decode || kernel.part == KernelPart::prefill;
  const Bound bound = bound_of(kernel, ceilings);
  return fmt::format("{:>9} {:>7} {:>8} {:>10}  {:20} {:>8.1f} {:>8.2f}  {:.0f} % {}\n", name_of(kernel.part),
                     kernel.tokens, attends ? fmt::format("{}", kernel.context) : "-",
                     microseconds(kernel.seconds.median), microseconds(kernel.seconds),
                     kernel.flop_rate() / 1e9, kernel.byte_rate() / 1e9, 100 * bound.share, bound.probe);
}

json kernel_json(const Kernel& kernel, const Ceilings& ceilings) {
  const Bound bound = bound_of(kernel, ceilings);
  const bool computes = kernel.part != KernelPart::host;
  return {{"tensor", kernel.tensor},
          {"part", name_of(kernel.part)},
          {"tokens", kernel.tokens},
          {"context", kernel.context},
          {"layers", kernel.layers},
          {"time_us", kernel.seconds.median * 1e6},
          {"ci_low_us", kernel.seconds.low * 1e6},
          {"ci_high_us", kernel.seconds.high * 1e6},
          {"flops", kernel.flops},
          {"bytes", kernel.bytes},
          {"of_probe", computes ? json(bound.share) : json()},
          {"probe", computes ? json(bound.probe) : json()}};
}

KernelRow row_of(const Kernel& kernel) {
  KernelRow row{.tensor = kernel.tensor,
                .layers = static_cast<uint32_t>(kernel.layers),
                .tokens = static_cast<uint64_t>(kernel.tokens),
                .context = static_cast<uint64_t>(kernel.context),
                .time_s = kernel.seconds.median,
                .low_s = kernel.seconds.low,
                .high_s = kernel.seconds.high,
                .flops = kernel.flops,
                .bytes = kernel.bytes};
  copy_text(name_of(kernel.part), row.part);
  return row;
}

std::optional<BenchResult> bench_kernels(BenchJob& job, const PlacedJob& placed, Backend& backend) {
  const EngineOptions& engine = job.options().engine;
  const JobPlan& plan = placed.agreed.plan;
  const ModelConfig& config = placed.agreed.model->config;
  const std::vector<int> sizes = tensor_sizes(job.options().shapes_of_tp, engine, plan.backend, config);
  const std::vector<KernelCase> cases = kernel_cases(config.max_position_embeddings);
  const std::optional<Roofline> before = probe_roofline(job, backend, placed);
  if (!before) return std::nullopt;
  const Ceilings ceilings = share_of(*before);
  job.print(fmt::format("# probe: product {:.1f} GFLOP/s, read {:.2f} GB/s, of a rank\n",
                        ceilings.flops / 1e9, ceilings.read_bytes / 1e9));
  BenchResult result;
  result.numbers = {{"model", engine.model.string()}, {"dtype", name_of(plan.dtype)}};
  for (const int tensor : sizes) {
    const std::unique_ptr<ModelShard> shard = make_shard(job, placed, tensor, backend);
    job.print(caption(job, *shard, config, tensor, plan.dtype));
    for (const KernelCase& one : cases) {
      job.progress(result.kernels.size(), cases.size() * sizes.size(),
                   fmt::format("tp {} {}", tensor, name_of(one.part)));
      const std::optional<Kernel> kernel = measure(job, *shard, *backend.device, tensor, one);
      if (!kernel) return std::nullopt;
      add_row(job, *kernel, ceilings, result);
    }
  }
  if (!measure_host(job, backend, ceilings, result)) return std::nullopt;
  const std::optional<Roofline> after = probe_roofline(job, backend, placed);
  if (!after) return std::nullopt;
  add_probes(result, *before, *after);
  return result;
}

}  // namespace maniple
