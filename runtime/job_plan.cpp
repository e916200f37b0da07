#include <kernels/sampling_batch.hpp>
#include <kernels/support/counted.hpp>
#include <layers/models/model.hpp>
#include <parallel/shard.hpp>
#include <runtime/checkpoint/loading/weight_sizes.hpp>
#include <runtime/job_plan.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace maniple {
namespace {

// Why these ranks cannot give the bits of one rank; empty if they can.
std::string reason_against_grid(const ModelConfig& config, const GridSize& grid) {
  const auto reason = [](int ranks, const char* kind, int64_t parts, const std::string& of_what) {
    return fmt::format("{} {} ranks do not divide the {} {}", ranks, kind, parts, of_what);
  };
  if (attention_classes % grid.context != 0)
    return reason(grid.context, "context", attention_classes, "classes of attention");
  const int parts_of_experts = grid.tensor / grid.expert;
  const int64_t granule = config.activation_group, shared = config.experts.shared_width;
  std::vector<std::tuple<const char*, int64_t, int>> sums{
      {"attention", config.attention_width(), grid.tensor}};
  for (const LayerConfig& layer : config.layers)
    if (!layer.is_sparse()) sums.emplace_back("the MLP", layer.dense_width, grid.tensor);
  const bool sparse = config.sparse_layers() > 0;
  if (sparse) sums.emplace_back("an expert", config.experts.width, parts_of_experts);
  if (sparse && shared > 0 && keeps_granules(shared, grid.tensor, granule))
    sums.emplace_back("the shared expert", shared, grid.tensor);
  for (const auto& [name, width, ranks] : sums)
    if (!reduction_slices(width, ranks, granule).independent_of_parts)
      return reason(ranks, "tensor", reduction_slices(width, 1, granule).total,
                    fmt::format("reduction slices of {}'s width {}", name, width));
  if (sparse && expert_slices(config.experts.count) % grid.expert != 0)
    return reason(grid.expert, "expert", expert_slices(config.experts.count),
                  fmt::format("slices of {} experts", config.experts.count));
  return vocabulary_chunks % grid.tensor == 0
             ? ""
             : reason(grid.tensor, "tensor", vocabulary_chunks, "chunks of the vocabulary");
}

// Sets the level in force, and why it is not that of the options.
void set_repro(JobPlan& plan, const EngineOptions& options, const ModelConfig& config) {
  if (plan.backend.kind == BackendKind::cuda) {
    plan.repro = Repro::off;
    plan.repro_reason = options.repro == Repro::off ? "" : "sums on GPUs keep no order";
    return;
  }
  plan.repro_reason = reason_against_grid(config, plan.grid);
  plan.repro = plan.repro_reason.empty() ? Repro::grid : Repro::batch;
  if (plan.repro == options.repro) plan.repro_reason.clear();
  if (options.repro && plan.repro > *options.repro) plan.repro_reason = "as always on CPUs";
}

std::string alternatives(const std::vector<int>& numbers) {
  if (numbers.size() < 2) return fmt::format("{}", fmt::join(numbers, ""));
  return fmt::format("{} or {}", fmt::join(numbers.begin(), numbers.end() - 1, ", "), numbers.back());
}

void check_tensor_size(int ranks, int tensor) {
  if (tensor >= 1 && ranks % tensor == 0) return;
  fail(ExitCode::usage,
       "ranks ({}) do not divide by `tensor_size` {}; use `tensor_size` {}, or start a multiple of {} ranks",
       ranks, tensor, alternatives(small_divisors(ranks)), tensor);
}

void check_pipeline(int ranks, const EngineOptions& options) {
  const int stages = options.pipeline_size, tensor = options.tensor_size, left = ranks / tensor;
  const size_t named = options.pipeline_layers.size();
  if (stages < 1 || left % stages != 0)
    fail(ExitCode::usage,
         "ranks ({}) do not divide by `tensor_size` {} times `pipeline_size` {}; use `pipeline_size` {}, or "
         "start a multiple of {} ranks",
         ranks, tensor, stages, alternatives(small_divisors(left)), tensor * stages);
  if (named != 0 && named != static_cast<size_t>(stages))
    fail(ExitCode::usage, "`pipeline_layers` names {} and `pipeline_size` is {}", counted(named, "stage"),
         stages);
}

void check_stages(int ranks, const EngineOptions& options, int64_t layers) {
  const int stages = options.pipeline_size;
  if (stages > layers) {
    std::vector<int> fitting = small_divisors(ranks / options.tensor_size);
    std::erase_if(fitting, [layers](int size) { return size > layers; });
    fail(ExitCode::input, "layers ({}) are fewer than pipeline stages ({}); use `pipeline_size` {}", layers,
         stages, alternatives(fitting));
  }
  const std::vector<int64_t>& given = options.pipeline_layers;
  const int64_t sum = std::accumulate(given.begin(), given.end(), int64_t{0});
  if (!given.empty() && sum != layers)
    fail(ExitCode::input, "`pipeline_layers` adds up to {} and the model has {}",
         counted(static_cast<uint64_t>(sum), "layer"), layers);
}

void check_experts(const EngineOptions& options, const ModelConfig* config) {
  const int tensor = options.tensor_size, groups = options.expert_size.value_or(1);
  const bool is_read_later = !config && !options.model.empty();  // whether it has experts is said first
  const int64_t experts = config ? config->experts.count : groups;
  if (groups > 1 && experts == 0)
    fail(ExitCode::input, "`expert_size` {} is for models with experts, and {} has none", groups,
         config->architecture);
  if (groups < 1 || (!is_read_later && tensor % groups != 0))
    fail(ExitCode::usage, "`expert_size` {} does not divide `tensor_size` {}; use `expert_size` {}", groups,
         tensor, alternatives(small_divisors(tensor)));
  if (experts % groups != 0)
    fail(ExitCode::input, "experts ({}) do not divide by `expert_size` {}; use `expert_size` {}", experts,
         groups, alternatives(small_divisors(std::gcd(tensor, experts))));
}

// Whether the ranks of an expert hold whole blocks of the inputs that are rounded with one scale.
bool keeps_blocks(const ModelConfig& config, int parts) {
  return keeps_granules(config.experts.width, parts, config.activation_group);
}

void check_blocks(const GridSize& grid, const ModelConfig& config) {
  if (config.sparse_layers() == 0 || keeps_blocks(config, grid.tensor / grid.expert)) return;
  std::vector<int> fitting = small_divisors(std::gcd(grid.tensor, config.experts.count));
  std::erase_if(fitting, [&](int size) { return !keeps_blocks(config, grid.tensor / size); });
  fail(
      ExitCode::input,
      "`tensor_size` {} `expert_size` {} cuts an expert's blocks of {} inputs (it has {}), which are rounded "
      "with one scale; use {}",
      grid.tensor, grid.expert, config.activation_group, config.experts.width,
      fitting.empty() ? "another `tensor_size`" : "`expert_size` " + alternatives(fitting));
}

void check_context(const EngineOptions& options) {
  const int owners = options.context_size, tensor = options.tensor_size;
  if (owners < 1 || tensor % owners != 0)
    fail(ExitCode::usage, "`context_size` {} does not divide `tensor_size` {}; use `context_size` {}", owners,
         tensor, alternatives(small_divisors(tensor)));
  require(owners == 1 || options.block_size == attention_split, "a page of a shared context is a split");
}

// Only ranks that would hold the same keys and values can hold parts of them.
void check_context_of(const EngineOptions& options, const ModelConfig& config) {
  const int owners = options.context_size, tensor = options.tensor_size;
  const auto heads = static_cast<int>(config.num_kv_heads), holders = tensor / heads;
  if (owners == 1) return;
  if (holders < 2 || tensor % heads != 0) {
    const bool fits = config.num_heads % (int64_t{heads} * owners) == 0, few = tensor <= heads;
    fail(ExitCode::input,
         "`context_size` {} needs ranks that hold the same kv head, and `tensor_size` {} {} {} kv heads{}; "
         "use `context_size` 1{}",
         owners, tensor, few ? "gives each of" : "is no multiple of the", heads, few ? " one" : "",
         fits ? fmt::format(", or `tensor_size` {}", heads * owners) : "");
  }
  if (holders % owners != 0)
    fail(ExitCode::input,
         "the {} ranks of a kv head (`tensor_size` {}, {} kv heads) do not divide by `context_size` {}; use "
         "`context_size` {}",
         holders, tensor, heads, owners, alternatives(small_divisors(holders)));
}

void check_sequences(const EngineOptions& options, BackendKind backend) {
  if (options.max_num_batched_tokens < options.max_num_seqs)
    fail(ExitCode::usage,
         "`max_num_batched_tokens` {} is below `max_num_seqs` {}, but every running sequence takes a token a "
         "step",
         options.max_num_batched_tokens, options.max_num_seqs);
  if (backend == BackendKind::cuda && options.max_num_seqs > max_gpu_sequences)
    throw Error(
        ExitCode::usage,
        fmt::format("`max_num_seqs` {} is above {}, the most of a GPU", options.max_num_seqs,
                    max_gpu_sequences),
        "its attention keeps the lengths of all sequences of a step in shared memory",
        fmt::format("`max_num_seqs` {}; more replicas serve more sequences at once", max_gpu_sequences));
}

void check_heads(const ModelConfig& config, BackendKind backend) {
  const int64_t lanes = config.latent ? config.latent->row_lanes() : config.head_dim;
  if (backend == BackendKind::cuda && lanes > max_gpu_head_dim)
    throw Error(
        ExitCode::input,
        fmt::format("the model's heads of {} are larger than {}, the most of a GPU", lanes, max_gpu_head_dim),
        "no kernel holds such a head", "use `backend` cpu");
}

void check_lengths(const EngineOptions& options, const ModelConfig& config) {
  const int64_t longest = config.max_position_embeddings;
  if (options.max_model_len && *options.max_model_len > longest)
    fail(ExitCode::usage,
         "`max_model_len` {} is longer than the model's {} positions; use `max_model_len` {} or less",
         *options.max_model_len, longest, longest);
  const int64_t context = options.max_model_len.value_or(static_cast<uint32_t>(longest));
  if (const int64_t chosen = config.index_topk; chosen > 0 && context > chosen)
    throw Error(
        ExitCode::input,
        fmt::format("the model's sparse attention chooses {} tokens (index_topk), and a context of {} is "
                    "longer",
                    chosen, context),
        "choosing is not supported; a context of so many tokens needs none",
        fmt::format("`max_model_len` {}", chosen));
}

// int32 numbers the entries of all block tables (BatchBuilder).
void check_block_tables(const EngineOptions& options, const JobPlan& plan) {
  const uint64_t blocks = (uint64_t{plan.max_model_len} + plan.block_tokens - 1) / plan.block_tokens,
                 most = INT32_MAX / (blocks * static_cast<uint64_t>(plan.grid.context));
  if (options.max_num_seqs > most)
    fail(
        ExitCode::usage,
        "`max_num_seqs` {} sequences of {} tokens have {} blocks of the KV cache each, and the tables of all "
        "have 2^31 entries at most; use `max_num_seqs` {} or less, or a larger `block_size`",
        options.max_num_seqs, plan.max_model_len, blocks, most);
}

DType dtype_of(const EngineOptions& options, BackendKind backend, const ModelConfig& config,
               std::optional<DType> begun) {
  if (options.dtype) return *options.dtype;
  const bool fp16 = config.dtype == DType::fp16 && backend == BackendKind::cuda && begun != DType::bf16;
  return fp16 ? DType::fp16 : DType::bf16;
}

DType kv_dtype_of(const EngineOptions& options, DType dtype, const QuantScheme& scheme) {
  const DType type = options.kv_cache_dtype.value_or(scheme.keeps_fp8_kv() ? DType::fp8 : dtype);
  if (type != DType::fp8 && type != dtype)
    throw Error(ExitCode::usage,
                fmt::format("`kv_cache_dtype` {} is not the type of the activations ({})", name_of(type),
                            name_of(dtype)),
                "attention reads keys and values in their type, or in fp8",
                fmt::format("leave it out, or `dtype` {} too", name_of(type)));
  return type;
}

// Rows of logits in a step that scores prompts, where fewer sequences would have fewer.
constexpr uint32_t scored_rows = 256;

// Steps of a pipeline are cut alike: a stage is idle while the one before it computes a longer step.
uint32_t step_tokens_of(const EngineOptions& options, const JobPlan& plan) {
  if (plan.grid.pipeline == 1) return options.max_num_batched_tokens;
  constexpr uint32_t grain = 64;
  const auto share = [&](uint32_t of) { return (of + plan.steps_in_flight - 1) / plan.steps_in_flight; };
  const uint32_t alike = (share(options.max_num_batched_tokens) + grain - 1) / grain * grain;
  return std::min(options.max_num_batched_tokens, std::max(alike, share(options.max_num_seqs)));
}

// Layers cost what they weigh; the head costs its padded matrix, and the embedding, a look-up, nothing.
std::vector<IndexRange> stages_of(const EngineOptions& options, const ModelConfig& config, DType dtype,
                                  const QuantScheme& scheme) {
  if (options.pipeline_size == 1) return {{0, config.num_layers()}};
  if (!options.pipeline_layers.empty()) {
    std::vector<IndexRange> stages{{0, 0}};
    for (const int64_t count : options.pipeline_layers)
      stages.push_back({stages.back().end, stages.back().end + count});
    return {stages.begin() + 1, stages.end()};
  }
  std::vector<int64_t> costs;
  RankPlan layer;  // neither embeds nor samples
  layer.grid.pipeline = 3;
  layer.position.pipeline = 1;
  for (int64_t index = 0; index < config.num_layers(); ++index) {
    layer.layers = {index, index + 1};
    costs.push_back(static_cast<int64_t>(weight_bytes(*make_model(config, layer), dtype, scheme)));
  }
  const int64_t head = padded_vocabulary(config.vocab_size, 1) * config.hidden_size;
  return stage_layers(costs, head * static_cast<int64_t>(size_of(dtype)), options.pipeline_size);
}

// "3-4"; "3" for a single one.
std::string numbers_text(const IndexRange& range) {
  return range.size() == 1 ? fmt::format("{}", range.begin)
                           : fmt::format("{}-{}", range.begin, range.end - 1);
}

RankNeeds needs_of_rank(const JobPlan& plan, int rank, uint32_t block_size, const ModelConfig& config,
                        const QuantScheme& scheme) {
  const RankPlan place = plan.rank(rank);
  const std::unique_ptr<Model> model = make_model(config, place);
  KvGeometry kv{model->num_layers(), KvLayout::of(model->heads(), block_size, plan.kv_dtype)};
  kv.window_pages = place.grid.context;
  for (const int64_t window : model->windows()) kv.windowed.push_back(window > 0);
  return {weight_bytes(*model, plan.dtype, scheme), kv};
}

// The longest of any layer.
uint32_t window_of(const ModelConfig& config) {
  return static_cast<uint32_t>(std::ranges::max(config.layers, {}, &LayerConfig::window).window);
}

// Of the sizes, those that split every part of the model.
std::vector<int> fitting_tensor_sizes(std::vector<int> sizes, JobPlan plan, const ModelConfig& config) {
  std::erase_if(sizes, [&](int size) {
    plan.grid = {.tensor = size, .pipeline = plan.grid.pipeline};
    if (config.experts.count > 0) plan.grid.expert = default_expert_size(size, config);
    try {
      make_model(config, plan.rank(0));
      return false;
    } catch (const Indivisible&) {
      return true;
    }
  });
  return sizes;
}

// Of the divisors of the ranks, the tensor sizes that give the bits of one rank.
std::vector<int> sizes_for_grid(std::span<const RankLocation> locations, EngineOptions options,
                                BackendChoice backend, const ModelConfig& config) {
  std::vector<int> sizes = small_divisors(static_cast<int>(locations.size()));
  options.repro.reset();
  std::erase_if(sizes, [&](int size) {
    options.tensor_size = size;
    try {
      return plan_job(locations, options, backend, &config).repro != Repro::grid;
    } catch (const Error&) {
      return true;
    }
  });
  return sizes;
}

// What does not depend on a model.
JobPlan plan_grid(std::span<const RankLocation> locations, const EngineOptions& options,
                  BackendChoice backend) {
  const int ranks = static_cast<int>(locations.size()), tensor = options.tensor_size,
            pipeline = options.pipeline_size;
  JobPlan plan;
  plan.backend = backend;
  plan.dtype = options.dtype.value_or(DType::bf16);
  plan.grid = {.tensor = tensor,
               .pipeline = pipeline,
               .data = ranks / (tensor * pipeline),
               .context = options.context_size,
               .expert = options.expert_size.value_or(1)};
  plan.block_tokens = options.block_size * static_cast<uint32_t>(options.context_size);
  plan.tensor_groups_span_nodes = tensor_groups_span_nodes(locations, tensor);
  const bool beside_host = backend.kind == BackendKind::cuda;
  const int steps = pipeline > 1 ? pipeline + 1 : beside_host ? 2 : 1;
  plan.steps_in_flight = options.steps_in_flight.value_or(static_cast<uint32_t>(steps));
  if (pipeline > 1) plan.steps_in_flight = std::min(plan.steps_in_flight, options.max_num_seqs);
  plan.step_tokens = step_tokens_of(options, plan);
  plan.max_rows = std::max(options.max_num_seqs, std::min(scored_rows, plan.step_tokens));
  return plan;
}

void plan_model(JobPlan& plan, int ranks, const EngineOptions& options, const ModelConfig& config,
                std::optional<DType> begun) {
  const std::unique_ptr<const QuantScheme> scheme = scheme_of(config);
  plan.dtype = dtype_of(options, plan.backend.kind, config, begun);
  plan.kv_dtype = kv_dtype_of(options, plan.dtype, *scheme);
  if (!options.expert_size && config.experts.count > 0)
    plan.grid.expert = default_expert_size(plan.grid.tensor, config);
  check_blocks(plan.grid, config);
  check_heads(config, plan.backend.kind);
  check_lengths(options, config);
  check_sequences(options, plan.backend.kind);
  set_repro(plan, options, config);
  check_stages(ranks, options, config.num_layers());
  plan.stages = stages_of(options, config, plan.dtype, *scheme);
  plan.max_model_len = options.max_model_len.value_or(static_cast<uint32_t>(config.max_position_embeddings));
  plan.window = window_of(config);
  check_block_tables(options, plan);
  try {
    for (int member = 0; member < plan.grid.replica_ranks(); ++member)
      plan.needs.push_back(needs_of_rank(plan, member, options.block_size, config, *scheme));
  } catch (const Indivisible& error) {
    throw Error(ExitCode::input,
                fmt::format("{} ({}) do not divide by tensor ranks ({}); use `tensor_size` {}",
                            error.dimension, error.size, plan.grid.tensor,
                            alternatives(fitting_tensor_sizes(small_divisors(error.size), plan, config))),
                "every tensor rank holds the same number of whole ones");
  }
  check_context_of(options, config);
}

}  // namespace

RankPlan JobPlan::rank(int rank) const {
  RankPlan plan{grid, position_in(grid, rank), groups_of(grid, rank), std::nullopt};
  if (!stages.empty()) plan.layers = stages[static_cast<size_t>(plan.position.pipeline)];
  return plan;
}

std::string grid_text(const GridSize& grid) {
  const std::string stages = grid.pipeline > 1 ? fmt::format("pipeline {} x ", grid.pipeline) : "";
  std::vector<std::string> inside;
  if (grid.context > 1) inside.push_back(fmt::format("context {}", grid.context));
  if (grid.expert > 1) inside.push_back(fmt::format("expert {}", grid.expert));
  const std::string factors = inside.empty() ? "" : fmt::format(" ({})", fmt::join(inside, ", "));
  return fmt::format("tensor {}{} x {}data {}", grid.tensor, factors, stages, grid.data);
}

int default_expert_size(int tensor_size, const ModelConfig& config) {
  const ExpertsConfig& experts = config.experts;
  const auto divisors = static_cast<int>(std::gcd<int64_t>(tensor_size, experts.count));
  int least = 1;
  for (int size = divisors; size >= 1; --size) {
    if (divisors % size != 0 || !keeps_blocks(config, tensor_size / size)) continue;
    if (experts.count / size >= 2 * experts.router.per_token) return size;
    least = size;
  }
  return least;
}

std::string layers_text(const IndexRange& layers) { return "layers " + numbers_text(layers); }

std::string stages_text(const JobPlan& plan) {
  if (plan.stages.size() < 2) return "";
  std::string text = layers_text(plan.stages.front());
  for (size_t stage = 1; stage < plan.stages.size(); ++stage)
    text += " | " + numbers_text(plan.stages[stage]);
  return text;
}

bool tensor_groups_span_nodes(std::span<const RankLocation> locations, int tensor_size) {
  const GridSize grid{.tensor = tensor_size, .data = static_cast<int>(locations.size()) / tensor_size};
  for (int first = 0; first < grid.ranks(); first += tensor_size)
    for (const int rank : groups_of(grid, first).tensor)
      if (locations[static_cast<size_t>(rank)].node != locations[static_cast<size_t>(first)].node)
        return true;
  return false;
}

JobPlan plan_job(std::span<const RankLocation> locations, const EngineOptions& options, BackendChoice backend,
                 const ModelConfig* config, std::optional<DType> begun) {
  require(!locations.empty(), "a job has at least one rank");
  const int ranks = static_cast<int>(locations.size());
  check_tensor_size(ranks, options.tensor_size);
  check_pipeline(ranks, options);
  check_experts(options, config);
  check_context(options);
  JobPlan plan = plan_grid(locations, options, backend);
  if (!config) return plan;
  plan_model(plan, ranks, options, *config, begun);
  if (options.repro != Repro::grid || plan.repro == Repro::grid) return plan;
  const std::vector<int> sizes = sizes_for_grid(locations, options, backend, *config);
  fail(ExitCode::input, "`repro` grid cannot be kept: {}; use `repro` auto{}", plan.repro_reason,
       sizes.empty() ? "" : ", or `tensor_size` " + alternatives(sizes));
}

}  // namespace maniple
