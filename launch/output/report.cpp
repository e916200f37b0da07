#include <kernels/support/counted.hpp>
#include <kernels/support/host_memory.hpp>
#include <kernels/support/number_text.hpp>
#include <kernels/support/quantile.hpp>
#include <launch/options/option_names.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/report.hpp>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <new>
#include <system_error>

namespace maniple {
namespace {

double median(const std::vector<RankTimes>& ranks, const auto& of) {
  std::vector<double> values;
  for (const RankTimes& rank : ranks) values.push_back(std::invoke(of, rank));
  return quantile(std::move(values), 0.5);
}

// A slow rank shows in its own work: the others wait for it, which counts as communication.
double own_work(const RankTimes& rank) { return rank.prefill + rank.decode - rank.communication; }

// How the requests ended, and which limits made completions shorter than requested.
std::string endings_text(const RunSummary& summary, size_t failed, uint32_t max_model_len) {
  std::string text = fmt::format("maniple: ended by: stop {}, length {}, error {}\n", summary.stopped,
                                 summary.reached_length, failed);
  if (summary.clipped > 0)
    text += fmt::format("maniple: max_tokens of {} clipped to what the context of {} leaves\n",
                        counted(summary.clipped, "request"), counted(max_model_len, "token"));
  if (summary.ended_by_context > 0)
    text += fmt::format("maniple: {} ended at the end of the context of {}\n",
                        counted(summary.ended_by_context, "request"), counted(max_model_len, "token"));
  if (summary.ended_by_cache > 0)
    text +=
        fmt::format("maniple: {} without max_tokens ended where the KV cache ends; for more: --kv-memory\n",
                    counted(summary.ended_by_cache, "chat"));
  return text;
}

std::string times_text(const std::vector<RankTimes>& ranks, const std::vector<RankLocation>& locations) {
  if (ranks.empty()) return {};
  const RankTimes medians{median(ranks, &RankTimes::load), median(ranks, &RankTimes::prefill),
                          median(ranks, &RankTimes::decode), median(ranks, &RankTimes::communication),
                          median(ranks, &RankTimes::idle)};
  const std::string text = fmt::format(
      "maniple: {} {}", ranks.size() == 1 ? "times:" : "times (medians of the ranks):", times_text(medians));
  if (ranks.size() == 1) return text + '\n';
  const auto slowest = std::ranges::max_element(ranks, {}, own_work);
  const auto rank = static_cast<size_t>(slowest - ranks.begin());
  return text + fmt::format("\nmaniple: slowest rank: {} on {}, {:.1f} s of its own work (median {:.1f} s)\n",
                            rank, locations[rank].host, own_work(*slowest), median(ranks, own_work));
}

std::string cache_text(DType type, bool has_scales) {
  const bool unscaled = type == DType::fp8 && !has_scales;
  return fmt::format("{}{}", name_of(type), unscaled ? " with scale 1 (the checkpoint has none)" : "");
}

}  // namespace

void say(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::string error_block(const Error& error, const std::string& speaker) {
  if (error.code() == closed_pipe) return {};
  std::string block = fmt::format("maniple: error: {}\n", error.what());
  if (!error.why().empty()) block += fmt::format("  why: {}\n", error.why());
  if (!error.remedy().empty()) block += fmt::format("  try: {}\n", error.remedy());
  if (!speaker.empty()) block += fmt::format("  where: {}\n", speaker);
  return with_option_names(std::move(block));
}

Error error_of(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const Error*>(&exception)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&exception)) return out_of_memory();
  const std::string limit = address_limit_text();
  const auto* system = dynamic_cast<const std::system_error*>(&exception);
  if (system && system->code() == std::errc::resource_unavailable_try_again)
    return {ExitCode::preflight, fmt::format("a thread could not be started: {}{}", system->what(), limit),
            "each thread needs a stack, and counts for the limit of processes",
            limit.empty() ? "look at ulimit -u, and at the job's limit of processes" : address_limit_remedy};
  return {ExitCode::internal, std::string("unexpected: ") + exception.what(), "this is a bug in maniple",
          "please report it with the command line and this message"};
}

std::string times_text(const RankTimes& times) {
  return fmt::format(
      "load {:.1f} s, prefill {:.1f} s, decode {:.1f} s, communication {:.1f} s, idle {:.1f} s", times.load,
      times.prefill, times.decode, times.communication, times.idle);
}

std::string banner(const EngineOptions& options, const JobPlan& plan, const EngineInfo& info,
                   const World& world, const SeedReport& seed) {
  const std::string graphs =
      info.num_graphs == 0 ? ""
                           : fmt::format("maniple: {} of decode steps of up to {}, captured in {:.1f} s\n",
                                         counted(info.num_graphs, "graph"),
                                         counted(options.max_num_seqs, "sequence"), info.capture_seconds);
  const std::string left_out =
      info.left_out.empty() ? "" : fmt::format("maniple: not read: {}\n", info.left_out);
  const std::string windows =
      plan.window == 0 ? "" : fmt::format(", {} for windows of {}", info.window_blocks, plan.window);
  const std::string reason = plan.repro_reason.empty() ? "" : fmt::format(" ({})", plan.repro_reason);
  const std::string stages = plan.stages.size() > 1 ? fmt::format(" ({})", stages_text(plan)) : "";
  return fmt::format(
      "maniple " MANIPLE_VERSION
      ": {} ({}), {}weights loaded in {:.1f} s\n"
      "maniple: {} = {}{}; {}; {}; {}{}{}\n"
      "maniple: weights: {}, {} a rank; kv cache: {}\n"
      "{}{}{}"
      "maniple: KV cache: {} of {} tokens a rank{}, up to {} a sequence; reproducibility: {}; seed "
      "{}{}\n{}",
      options.model.string(), info.architecture, options.random_weights ? "random " : "", info.load_seconds,
      counted(static_cast<size_t>(world.size()), "rank"), grid_text(plan.grid), stages, world.description(),
      info.backend, name_of(plan.dtype),
      info.attention.empty() ? "" : fmt::format(", attention on {}", info.attention),
      info.sums.empty() ? "" : fmt::format("; sums by {}", info.sums),
      info.quantisation.empty() ? name_of(plan.dtype) : info.quantisation, bytes_text(info.weight_bytes),
      cache_text(plan.kv_dtype, info.kv_scales), left_out,
      info.latent.empty() ? "" : fmt::format("maniple: attention: {}\n", info.latent),
      info.experts.empty() ? "" : fmt::format("maniple: experts: {}\n", info.experts),
      counted(info.num_blocks, "block"), plan.block_tokens, windows, counted(plan.max_model_len, "token"),
      std::string(name_of(plan.repro)) + reason, seed.value,
      seed.origin.empty() ? "" : fmt::format(" ({})", seed.origin), graphs);
}

std::string experts_json(const std::vector<ExpertLoad>& loads) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const ExpertLoad& load : loads)
    layers.push_back({{"layer", load.layer},
                      {"hottest", load.hottest},
                      {"imbalance", load.imbalance},
                      {"unused", load.unused}});
  return layers.dump();
}

std::string summary_text(const RunSummary& summary, size_t done, size_t failed, uint32_t max_model_len,
                         const std::vector<RankLocation>& locations) {
  const double seconds = std::max(summary.seconds, 1e-9);
  const std::string preempted =
      summary.preemptions == 0 ? "" : ", " + counted(summary.preemptions, "preemption");
  return fmt::format(
             "maniple: {}{}, {} failed; {} ({} cached), {} in {:.1f} s: "
             "{:.1f} tok/s{}\n",
             counted(done, "request"), summary.interrupted ? " before the interruption" : "", failed,
             counted(summary.prompt_tokens, "prompt token"), summary.cached_tokens,
             counted(summary.completion_tokens, "completion token"), summary.seconds,
             static_cast<double>(summary.completion_tokens) / seconds, preempted) +
         endings_text(summary, failed, max_model_len) + times_text(summary.ranks, locations);
}

}  // namespace maniple
