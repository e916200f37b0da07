#include <kernels/sampling_batch.hpp>
#include <layers/models/model.hpp>
#include <parallel/shard.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <runtime/job_plan.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace maniple {
namespace {

using Field = PlanRefusal::Field;

// Why these ranks cannot give the bits of one rank; empty if they can.
std::string reason_against_grid(const ModelConfig& config, const GridSize& grid) {
  const auto reason = [](int ranks, const char* kind, int64_t parts, const std::string& of_what) {
    return fmt::format("{} {} ranks do not divide the {} {}", ranks, kind, parts, of_what);
  };
  if (attention_classes % grid.context != 0)
    return reason(grid.context, "context", attention_classes, "classes of attention");
  const int parts_of_experts = grid.tensor / grid.expert;
  const int64_t sparse = config.sparse_layers(), dense = config.num_layers - sparse;
  const int64_t attention = config.num_heads * config.head_dim;
  for (const auto& [name, layers, width, ranks] :
       {std::tuple("attention", config.num_layers, attention, grid.tensor),
        {"the MLP", dense, config.intermediate_size, grid.tensor},
        {"an expert", sparse, config.experts.width, parts_of_experts}})
    if (const int64_t granule = config.activation_group;
        layers > 0 && !reduction_slices(width, ranks, granule).independent_of_parts)
      return reason(ranks, "tensor", reduction_slices(width, 1, granule).total,
                    fmt::format("reduction slices of {}'s width {}", name, width));
  if (sparse > 0 && expert_slices(config.experts.count) % grid.expert != 0)
    return reason(grid.expert, "expert", expert_slices(config.experts.count),
                  fmt::format("slices of {} experts", config.experts.count));
  return vocabulary_chunks % grid.tensor == 0
             ? ""
             : reason(grid.tensor, "tensor", vocabulary_chunks, "chunks of the vocabulary");
}

// Sets the level in force, and why it is not that of the options.
void set_repro(JobPlan& plan, const EngineOptions& options, const ModelConfig& config) {
  if (options.backend.kind == BackendKind::cuda) {
    plan.repro = Repro::off;
    plan.repro_reason = options.repro == Repro::off ? "" : "sums on GPUs keep no order";
    return;
  }
  plan.repro_reason = reason_against_grid(config, plan.grid);
  plan.repro = plan.repro_reason.empty() ? Repro::grid : Repro::batch;
  if (plan.repro == options.repro) plan.repro_reason.clear();
  if (options.repro && plan.repro > *options.repro) plan.repro_reason = "as always on CPUs";
}

// The tensor sizes that give the bits of one rank.
std::vector<int> sizes_for_grid(std::span<const RankLocation> locations, EngineOptions options,
                                const ModelConfig& config) {
  std::vector<int> sizes = small_divisors(static_cast<int>(locations.size()));
  options.repro.reset();
  std::erase_if(sizes, [&](int size) {
    options.tensor_size = size;
    const auto plan = plan_job(locations, options, &config);
    return !std::holds_alternative<JobPlan>(plan) || std::get<JobPlan>(plan).repro != Repro::grid;
  });
  return sizes;
}

std::optional<PlanRefusal> refuse_sizes(const EngineOptions& options, const ModelConfig& config) {
  const int64_t longest = config.max_position_embeddings;
  if (options.max_model_len && *options.max_model_len > longest)
    return PlanRefusal{Field::max_model_len,       *options.max_model_len, "positions", longest, true,
                       {static_cast<int>(longest)}};
  const int64_t context = options.max_model_len.value_or(static_cast<uint32_t>(longest));
  if (const int64_t window = config.sliding_window; window > 0 && context > window)
    return PlanRefusal{Field::max_model_len,      context, "sliding_window", window, true,
                       {static_cast<int>(window)}};
  if (options.max_num_batched_tokens < options.max_num_seqs)
    return PlanRefusal{Field::max_num_batched_tokens,
                       options.max_num_batched_tokens,
                       "max_num_seqs",
                       options.max_num_seqs,
                       false,
                       {static_cast<int>(options.max_num_seqs)}};
  return std::nullopt;
}

std::optional<PlanRefusal> refuse_pipeline(int ranks, const EngineOptions& options) {
  const int stages = options.pipeline_size, left = ranks / options.tensor_size;
  const auto named = static_cast<int>(options.pipeline_layers.size());
  if (stages < 1 || left % stages != 0)
    return PlanRefusal{Field::pipeline_size, stages, "ranks", ranks, false, small_divisors(left)};
  if (named != 0 && named != stages)
    return PlanRefusal{Field::pipeline_layers, named, "stages", stages, false, {stages}};
  return std::nullopt;
}

std::optional<PlanRefusal> refuse_layers(int ranks, const EngineOptions& options, const ModelConfig& config) {
  const int64_t layers = config.num_layers;
  const auto given =
      std::accumulate(options.pipeline_layers.begin(), options.pipeline_layers.end(), int64_t{0});
  std::vector<int> fitting = small_divisors(ranks / options.tensor_size);
  std::erase_if(fitting, [layers](int stages) { return stages > layers; });
  if (options.pipeline_size > layers)
    return PlanRefusal{Field::pipeline_size, options.pipeline_size, "layers", layers, true, fitting};
  if (!options.pipeline_layers.empty() && given != layers)
    return PlanRefusal{Field::pipeline_layers, given, "layers", layers, true, {static_cast<int>(layers)}};
  return std::nullopt;
}

std::optional<PlanRefusal> refuse_experts(const EngineOptions& options, const ModelConfig* config) {
  const int tensor = options.tensor_size, groups = options.expert_size.value_or(1);
  const auto refusal = [&](const char* limit, int64_t value, bool of_model, std::vector<int> fitting) {
    return PlanRefusal{Field::expert_size, groups, limit, value, of_model, std::move(fitting)};
  };
  const bool is_read_later = !config && !options.model.empty();  // whether it has experts is said first
  const int64_t experts = config ? config->experts.count : groups;
  if (groups > 1 && experts == 0) return refusal("experts", 0, true, small_divisors(tensor));
  if (groups < 1 || (!is_read_later && tensor % groups != 0))
    return refusal("tensor_size", tensor, false, small_divisors(tensor));
  if (experts % groups != 0)
    return refusal("experts", experts, true, small_divisors(std::gcd(tensor, experts)));
  return std::nullopt;
}

// Whether the ranks of an expert hold whole blocks of the inputs that are rounded with one scale.
bool keeps_blocks(const ModelConfig& config, int parts) {
  const int64_t width = config.experts.width, block = config.activation_group;
  return block == 1 || parts == 1 || (width % block == 0 && width / block % parts == 0);
}

std::optional<PlanRefusal> refuse_cut_blocks(const GridSize& grid, const ModelConfig& config) {
  if (config.sparse_layers() == 0 || keeps_blocks(config, grid.tensor / grid.expert)) return std::nullopt;
  std::vector<int> fitting = small_divisors(std::gcd(grid.tensor, config.experts.count));
  std::erase_if(fitting, [&](int size) { return !keeps_blocks(config, grid.tensor / size); });
  return PlanRefusal{Field::expert_size,      grid.expert, "inputs of a block",
                     config.activation_group, true,        std::move(fitting)};
}

std::optional<PlanRefusal> refuse_context(const EngineOptions& options) {
  const int owners = options.context_size, tensor = options.tensor_size;
  if (owners < 1 || tensor % owners != 0)
    return PlanRefusal{Field::context_size, owners, "tensor_size", tensor, false, small_divisors(tensor)};
  require(owners == 1 || options.block_size == attention_split, "a page of a shared context is a split");
  return std::nullopt;
}

// Only ranks that would hold the same keys and values can hold parts of them.
std::optional<PlanRefusal> refuse_context(const EngineOptions& options, const ModelConfig& config) {
  const int owners = options.context_size, tensor = options.tensor_size;
  const auto heads = static_cast<int>(config.num_kv_heads), holders = tensor / heads;
  if (owners == 1) return std::nullopt;
  if (holders < 2 || tensor % heads != 0) {
    const bool fits = config.num_heads % (int64_t{heads} * owners) == 0;
    return PlanRefusal{Field::context_size,
                       owners,
                       "kv heads",
                       heads,
                       true,
                       fits ? std::vector{heads * owners} : std::vector<int>{}};
  }
  if (holders % owners != 0)
    return PlanRefusal{Field::context_size,    owners, "ranks of a kv head", holders, true,
                       small_divisors(holders)};
  return std::nullopt;
}

// Steps of a pipeline are cut alike: a stage is idle while the one before it computes a longer step.
uint32_t step_tokens_of(const EngineOptions& options, const JobPlan& plan) {
  if (plan.grid.pipeline == 1) return options.max_num_batched_tokens;
  constexpr uint32_t grain = 64;
  const auto share = [&](uint32_t of) { return (of + plan.steps_in_flight - 1) / plan.steps_in_flight; };
  const uint32_t alike = (share(options.max_num_batched_tokens) + grain - 1) / grain * grain;
  return std::min(options.max_num_batched_tokens, std::max(alike, share(options.max_num_seqs)));
}

// Layers cost what they weigh; the head costs its padded matrix, and the embedding, a look-up, nothing.
std::vector<IndexRange> stages_of(const EngineOptions& options, const ModelConfig& config) {
  if (options.pipeline_size == 1) return {{0, config.num_layers}};
  if (!options.pipeline_layers.empty()) {
    std::vector<IndexRange> stages{{0, 0}};
    for (const int64_t count : options.pipeline_layers)
      stages.push_back({stages.back().end, stages.back().end + count});
    return {stages.begin() + 1, stages.end()};
  }
  std::vector<int64_t> costs;
  const std::unique_ptr<const QuantScheme> scheme = scheme_of(config);
  RankPlan layer;  // neither embeds nor samples
  layer.grid.pipeline = 3;
  layer.position.pipeline = 1;
  for (int64_t index = 0; index < config.num_layers; ++index) {
    layer.layers = {index, index + 1};
    costs.push_back(static_cast<int64_t>(weight_bytes(*make_model(config, layer), options.dtype, *scheme)));
  }
  const int64_t head = padded_vocabulary(config.vocab_size, 1) * config.hidden_size;
  return stage_layers(costs, head * static_cast<int64_t>(size_of(options.dtype)), options.pipeline_size);
}

// "3-4"; "3" for a single one.
std::string numbers_text(const IndexRange& range) {
  return range.size() == 1 ? fmt::format("{}", range.begin)
                           : fmt::format("{}-{}", range.begin, range.end - 1);
}

RankNeeds needs_of_rank(const RankPlan& rank, const EngineOptions& options, const ModelConfig& config,
                        const QuantScheme& scheme) {
  const std::unique_ptr<Model> model = make_model(config, rank);
  const HeadLayout heads = model->heads();
  return {weight_bytes(*model, options.dtype, scheme),
          {model->num_layers(),
           {heads.kv_heads, heads.head_dim, options.block_size, kv_cache_dtype(options, scheme)}}};
}

// Those of the sizes that split every part of the model.
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

}  // namespace

DType kv_cache_dtype(const EngineOptions& options, const QuantScheme& scheme) {
  return options.kv_cache_dtype.value_or(scheme.keeps_fp8_kv() ? DType::fp8 : options.dtype);
}

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
    if (experts.count / size >= 2 * experts.per_token) return size;
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

std::variant<JobPlan, PlanRefusal> plan_job(std::span<const RankLocation> locations,
                                            const EngineOptions& options, const ModelConfig* config) {
  require(!locations.empty(), "a job has at least one rank");
  const int ranks = static_cast<int>(locations.size()), tensor = options.tensor_size;
  if (tensor < 1 || ranks % tensor != 0)
    return PlanRefusal{Field::tensor_size, tensor, "ranks", ranks, false, small_divisors(ranks)};
  if (std::optional<PlanRefusal> refusal = refuse_pipeline(ranks, options)) return std::move(*refusal);
  if (std::optional<PlanRefusal> refusal = refuse_experts(options, config)) return std::move(*refusal);
  if (std::optional<PlanRefusal> refusal = refuse_context(options)) return std::move(*refusal);
  const int pipeline = options.pipeline_size;
  JobPlan plan;
  plan.grid = {.tensor = tensor,
               .pipeline = pipeline,
               .data = ranks / (tensor * pipeline),
               .context = options.context_size};
  plan.block_tokens = options.block_size * static_cast<uint32_t>(options.context_size);
  plan.tensor_groups_span_nodes = tensor_groups_span_nodes(locations, tensor);
  const bool beside_host = options.backend.kind == BackendKind::cuda;
  const int steps = pipeline > 1 ? pipeline + 1 : beside_host ? 2 : 1;
  plan.steps_in_flight = options.steps_in_flight.value_or(static_cast<uint32_t>(steps));
  if (pipeline > 1) plan.steps_in_flight = std::min(plan.steps_in_flight, options.max_num_seqs);
  plan.step_tokens = step_tokens_of(options, plan);
  plan.grid.expert = options.expert_size.value_or(1);
  if (!config) return plan;
  if (!options.expert_size && config->experts.count > 0)
    plan.grid.expert = default_expert_size(tensor, *config);
  if (std::optional<PlanRefusal> refusal = refuse_cut_blocks(plan.grid, *config)) return std::move(*refusal);

  if (std::optional<PlanRefusal> refusal = refuse_sizes(options, *config)) return std::move(*refusal);
  set_repro(plan, options, *config);
  if (std::optional<PlanRefusal> refusal = refuse_layers(ranks, options, *config)) return std::move(*refusal);
  plan.stages = stages_of(options, *config);
  plan.max_model_len = options.max_model_len.value_or(static_cast<uint32_t>(config->max_position_embeddings));
  try {
    const std::unique_ptr<const QuantScheme> scheme = scheme_of(*config);
    for (int member = 0; member < plan.grid.replica_ranks(); ++member)
      plan.needs.push_back(needs_of_rank(plan.rank(member), options, *config, *scheme));
  } catch (const Indivisible& error) {
    return PlanRefusal{
        Field::tensor_size, tensor, error.dimension,
        error.size,         true,   fitting_tensor_sizes(small_divisors(error.size), plan, *config)};
  }
  if (std::optional<PlanRefusal> refusal = refuse_context(options, *config)) return std::move(*refusal);
  if (options.repro == Repro::grid && plan.repro != Repro::grid)
    return PlanRefusal{
        Field::repro, tensor, plan.repro_reason, 0, true, sizes_for_grid(locations, options, *config)};
  return plan;
}

}  // namespace maniple
