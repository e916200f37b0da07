#include <kernels/support/counted.hpp>
#include <launch/options/option_names.hpp>

#include <fmt/ranges.h>
#include <boost/algorithm/string/replace.hpp>

#include <array>
#include <utility>

namespace maniple {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 13> option_of_field = {{
    {"`backend`", "--backend"},
    {"`block_size`", "--block-size"},
    {"`context_size`", "--cp"},
    {"`gpu_memory_utilization`", "--gpu-memory-utilization"},
    {"`kv_cache_dtype`", "--kv-cache-dtype"},
    {"`kv_memory`", "--kv-memory"},
    {"`overwrite`", "--overwrite"},
    {"`pipeline_size`", "--pp"},
    {"`quantize`", "--quantize"},
    {"`tensor_size`", "--tp"},
    {"`transport`", "--transport"},
    {"`gpus_a_node`", "--gpus-per-node"},  // srun's
    {"`ranks_a_node`", "--ntasks-per-node"},
}};

[[noreturn]] void refuse_stages(const PlanRefusal& refusal, int tensor_size) {
  const std::string fitting = alternatives(refusal.fitting);
  if (refusal.of_model)
    fail(ExitCode::input, "layers ({}) are fewer than pipeline stages ({}); use --pp {}", refusal.limit_value,
         refusal.value, fitting);
  fail(ExitCode::usage,
       "ranks ({}) do not divide by --tp {} times --pp {}; use --pp {}, or start a multiple of {} ranks",
       refusal.limit_value, tensor_size, refusal.value, fitting, tensor_size * refusal.value);
}

[[noreturn]] void refuse_experts(const PlanRefusal& refusal, int tensor_size, const ModelConfig* config) {
  const std::string fitting = alternatives(refusal.fitting);
  if (!refusal.of_model)
    fail(ExitCode::usage, "--ep {} does not divide --tp {}; use --ep {}", refusal.value, refusal.limit_value,
         fitting);
  if (refusal.limit != "experts")
    fail(ExitCode::input,
         "--tp {} --ep {} cuts an expert's blocks of {} inputs (it has {}), which are rounded with one "
         "scale; use {}",
         tensor_size, refusal.value, refusal.limit_value, config->experts.width,
         fitting.empty() ? "another --tp" : "--ep " + fitting);
  if (refusal.limit_value == 0)
    fail(ExitCode::input, "--ep {} is for models with experts, and {} has none", refusal.value,
         config->architecture);
  fail(ExitCode::input, "experts ({}) do not divide by --ep {}; use --ep {}", refusal.limit_value,
       refusal.value, fitting);
}

[[noreturn]] void refuse_context(const PlanRefusal& refusal, int tensor_size) {
  const std::string fitting = alternatives(refusal.fitting);
  if (refusal.limit == "tensor_size")
    fail(ExitCode::usage, "--cp {} does not divide --tp {}; use --cp {}", refusal.value, tensor_size,
         fitting);
  if (refusal.limit == "kv heads")
    fail(ExitCode::input,
         "--cp {} needs ranks that hold the same kv head, and --tp {} {} {} kv heads{}; use --cp 1{}",
         refusal.value, tensor_size,
         tensor_size <= refusal.limit_value ? "gives each of" : "is no multiple of the", refusal.limit_value,
         tensor_size <= refusal.limit_value ? " one" : "", fitting.empty() ? "" : ", or --tp " + fitting);
  fail(ExitCode::input,
       "the {} ranks of a kv head (--tp {}, {} kv heads) do not divide by --cp {}; use --cp {}",
       refusal.limit_value, tensor_size, tensor_size / refusal.limit_value, refusal.value, fitting);
}

[[noreturn]] void refuse_plan(const PlanRefusal& refusal, int tensor_ranks, const ModelConfig* config) {
  using enum PlanRefusal::Field;
  const std::string fitting = alternatives(refusal.fitting);
  switch (refusal.field) {
    case max_model_len:
      if (refusal.limit == "sliding_window")
        throw Error(
            ExitCode::input,
            fmt::format("the model's sliding_window is {} tokens, and a context of {} is longer",
                        refusal.limit_value, refusal.value),
            "attention to the last tokens alone is not supported; a context that fits the window needs none",
            "--max-model-len " + fitting);
      fail(ExitCode::usage,
           "--max-model-len {} is longer than the model's {} {}; use --max-model-len {} or less",
           refusal.value, refusal.limit_value, refusal.limit, fitting);
    case max_num_batched_tokens:
      fail(ExitCode::usage,
           "--max-num-batched-tokens {} is below --max-num-seqs {}, but every running sequence takes a token "
           "a step",
           refusal.value, refusal.limit_value);
    case expert_size:
      refuse_experts(refusal, tensor_ranks, config);
    case context_size:
      refuse_context(refusal, tensor_ranks);
    case pipeline_size:
      refuse_stages(refusal, tensor_ranks);
    case pipeline_layers:
      if (refusal.of_model)
        fail(ExitCode::input, "--pp-layers adds up to {} and the model has {}",
             counted(refusal.value, "layer"), refusal.limit_value);
      fail(ExitCode::usage, "--pp-layers names {} and --pp is {}", counted(refusal.value, "stage"),
           refusal.limit_value);
    case repro:
      fail(ExitCode::input, "--repro grid cannot be kept: {}; use --repro auto{}", refusal.limit,
           fitting.empty() ? "" : ", or --tp " + fitting);
    case tensor_size:
      break;
  }
  if (refusal.of_model)
    throw Error(ExitCode::input,
                fmt::format("{} ({}) do not divide by tensor ranks ({}); use --tp {}", refusal.limit,
                            refusal.limit_value, refusal.value, fitting),
                "every tensor rank holds the same number of whole ones");
  fail(ExitCode::usage, "ranks ({}) do not divide by --tp {}; use --tp {}, or start a multiple of {} ranks",
       refusal.limit_value, refusal.value, fitting, refusal.value);
}

}  // namespace

std::string with_option_names(std::string text) {
  for (const auto& [field, option] : option_of_field) boost::algorithm::replace_all(text, field, option);
  return text;
}

std::string alternatives(std::span<const int> numbers) {
  if (numbers.size() < 2) return fmt::format("{}", fmt::join(numbers, ""));
  return fmt::format("{} or {}", fmt::join(numbers.first(numbers.size() - 1), ", "), numbers.back());
}

JobPlan plan_or_refuse(std::span<const RankLocation> locations, const EngineOptions& options,
                       const ModelConfig* config) {
  std::variant<JobPlan, PlanRefusal> plan = plan_job(locations, options, config);
  if (const auto* refusal = std::get_if<PlanRefusal>(&plan))
    refuse_plan(*refusal, options.tensor_size, config);
  return std::get<JobPlan>(std::move(plan));
}

}  // namespace maniple
