#include <kernels/sampling_batch.hpp>
#include <layers/models/model.hpp>
#include <parallel/shard.hpp>
#include <runtime/checkpoint/weight_loader.hpp>
#include <runtime/job_plan.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple {
namespace {

using Field = PlanRefusal::Field;

// Why this many tensor ranks cannot give the bits of one rank; empty if they can.
std::string reason_against_grid(const ModelConfig& config, int tensor_size) {
  const auto reason = [&](int parts, const char* of_what, const std::string& size) {
    return fmt::format("{} tensor ranks do not divide the {} {}{}", tensor_size, parts, of_what, size);
  };
  const int64_t attention = config.num_heads * config.head_dim, mlp = config.intermediate_size;
  for (const auto& [name, width] : {std::pair("attention", attention), std::pair("the MLP", mlp)})
    if (!reduction_slices(width, tensor_size).independent_of_parts)
      return reason(reduction_slices(width, 1).total, "reduction slices of ",
                    fmt::format("{}'s width {}", name, width));
  return vocabulary_chunks % tensor_size == 0 ? ""
                                              : reason(vocabulary_chunks, "chunks of the vocabulary", "");
}

// Sets the level in force, and why it is not that of the options.
void set_repro(JobPlan& plan, const EngineOptions& options, const ModelConfig& config) {
  if (options.backend.kind == BackendKind::cuda) {
    plan.repro = Repro::off;
    plan.repro_reason = options.repro == Repro::off ? "" : "sums on GPUs keep no order";
    return;
  }
  plan.repro_reason = reason_against_grid(config, plan.grid.tensor);
  plan.repro = plan.repro_reason.empty() ? Repro::grid : Repro::batch;
  if (plan.repro == options.repro) plan.repro_reason.clear();
  if (plan.repro > options.repro) plan.repro_reason = "as always on CPUs";
}

std::optional<PlanRefusal> refuse_sizes(const EngineOptions& options, const ModelConfig& config) {
  const int64_t longest = config.max_position_embeddings;
  if (options.max_model_len && *options.max_model_len > longest)
    return PlanRefusal{Field::max_model_len,       *options.max_model_len, "positions", longest, true,
                       {static_cast<int>(longest)}};
  if (options.max_num_batched_tokens < options.max_num_seqs)
    return PlanRefusal{Field::max_num_batched_tokens,
                       options.max_num_batched_tokens,
                       "max_num_seqs",
                       options.max_num_seqs,
                       false,
                       {static_cast<int>(options.max_num_seqs)}};
  return std::nullopt;
}

RankNeeds needs_of_rank(const RankPlan& rank, const EngineOptions& options, const ModelConfig& config) {
  const std::unique_ptr<Model> model = make_model(config, rank);
  const HeadLayout heads = model->heads();
  return {weight_bytes(*model, options.dtype),
          {model->num_layers(), {heads.kv_heads, heads.head_dim, options.block_size, options.dtype}}};
}

}  // namespace

RankPlan JobPlan::rank(int rank) const {
  RankPlan plan{grid, position_in(grid, rank), groups_of(grid, rank), std::nullopt};
  if (!stages.empty()) plan.layers = stages[static_cast<size_t>(plan.position.pipeline)];
  return plan;
}

bool tensor_groups_span_nodes(std::span<const RankLocation> locations, int tensor_size) {
  const GridSize grid{tensor_size, 1, static_cast<int>(locations.size()) / tensor_size};
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
  JobPlan plan;
  plan.grid = {.tensor = tensor, .pipeline = 1, .data = ranks / tensor};
  plan.tensor_groups_span_nodes = tensor_groups_span_nodes(locations, tensor);
  const bool beside_host = options.backend.kind == BackendKind::cuda;
  plan.steps_in_flight = options.steps_in_flight.value_or(beside_host ? 2 : 1);
  if (!config) return plan;

  if (std::optional<PlanRefusal> refusal = refuse_sizes(options, *config)) return std::move(*refusal);
  set_repro(plan, options, *config);
  plan.stages = {{0, config->num_layers}};
  plan.max_model_len = options.max_model_len.value_or(static_cast<uint32_t>(config->max_position_embeddings));
  try {
    for (int member = 0; member < plan.grid.replica_ranks(); ++member)
      plan.needs.push_back(needs_of_rank(plan.rank(member), options, *config));
  } catch (const Indivisible& error) {
    return PlanRefusal{Field::tensor_size, tensor, error.dimension,
                       error.size,         true,   small_divisors(error.size)};
  }
  return plan;
}

}  // namespace maniple
