#include <launch/commands/run_identity.hpp>
#include <launch/commands/run_recording.hpp>
#include <launch/record/provenance.hpp>

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <set>

namespace maniple {

namespace fs = std::filesystem;

namespace {

// Cut where it does not fit.
template <size_t Size>
void copy_text(std::string_view text, char (&to)[Size]) {
  text.copy(to, Size - 1);
}

nlohmann::ordered_json options_json(const GenerateOptions& options, const JobPlan& plan,
                                    const EngineInfo& info) {
  const EngineOptions& engine = options.engine;
  return {{"given", options.given},
          {"in_force",
           {{"ranks", plan.grid.replica_ranks() * plan.grid.data},
            {"tp", plan.grid.tensor},
            {"data", plan.grid.data},
            {"backend", info.backend},
            {"dtype", name_of(info.dtype)},
            {"threads", engine.backend.threads},
            {"block_size", info.block_size},
            {"kv_blocks", info.num_blocks},
            {"max_model_len", plan.max_model_len},
            {"max_num_seqs", engine.max_num_seqs},
            {"max_num_batched_tokens", engine.max_num_batched_tokens},
            {"steps_in_flight", plan.steps_in_flight},
            {"prefix_cache", engine.prefix_cache},
            {"schedule", engine.schedule == Policy::mixed ? "mixed" : "prefill-first"},
            {"weights", engine.random_weights ? "random" : "of the model"}}}};
}

Texts provenance_of(const GenerateOptions& options, const World& world, const JobPlan& plan,
                    const RankModel& model, GenerateJob& job) {
  Texts texts = machine_provenance(options.launch.environment);
  const EngineOptions& engine = options.engine;
  std::set<std::string> hosts;
  for (const RankLocation& location : world.locations()) hosts.insert(location.host);
  const ModelFiles files(engine.model);
  texts["command"] = "generate";
  texts["mpi"] = world.description();
  texts["cpu_path"] = instruction_path_of(engine.backend);
  texts["options"] = options_json(options, plan, model.info()).dump();
  texts["model_path"] = engine.model.string();
  texts["model_hash"] = fmt::format("{:016x}", model_hash(files));
  texts["config_json"] = files.text("config.json");
  const std::optional<uint64_t> input = job.input_hash();
  texts["input_hash"] = input ? fmt::format("{:016x}", *input) : "";
  texts["dtype"] = name_of(model.info().dtype);
  texts["repro_level"] = level_of(plan);
  texts["seed"] = fmt::format("{}", job.seed().value);
  texts["job"] = options.launch.job;
  texts["hosts"] = fmt::format("{}", fmt::join(hosts, " "));
  texts["started_utc"] = utc_now();
  return texts;
}

std::vector<TopologyRow> topology_of(const JobPlan& plan, const JobFacts& facts, const EngineInfo& info) {
  std::vector<TopologyRow> rows(facts.ranks.size());
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const RankLocation& location = facts.locations[rank];
    const GridPosition position = position_in(plan.grid, static_cast<int>(rank));
    TopologyRow& row = rows[rank];
    row.rank = static_cast<int32_t>(rank);
    row.node = location.node;
    row.local_rank = location.local_rank;
    row.tensor = position.tensor;
    row.data = position.data;
    copy_text(location.host, row.host);
    copy_text(ranges_text(facts.ranks[rank].cpus), row.cpus);
    copy_text(info.gpus[rank], row.gpu_uuid);
  }
  return rows;
}

std::vector<RankRow> rank_rows(const RunSummary& summary) {
  std::vector<RankRow> rows(summary.ranks.size());
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const RankTimes& times = summary.ranks[rank];
    const RankMemory& memory = summary.memory[rank];
    rows[rank] = {.rank = static_cast<int32_t>(rank),
                  .steps = static_cast<uint32_t>(memory.steps),
                  .load_s = times.load,
                  .prefill_s = times.prefill,
                  .decode_s = times.decode,
                  .comm_s = times.communication,
                  .idle_s = times.idle,
                  .weight_bytes = memory.weights,
                  .kv_bytes = memory.kv,
                  .scratch_bytes = memory.scratch,
                  .rss_peak_bytes = memory.resident_peak,
                  .fitting_blocks = memory.fitting_blocks};
  }
  return rows;
}

std::vector<GroupRow> group_rows(const RunSummary& summary) {
  std::vector<GroupRow> rows;
  for (size_t rank = 0; rank < summary.collectives.size(); ++rank)
    for (const CollectiveUse& use : summary.collectives[rank]) {
      GroupRow& row = rows.emplace_back();
      row.rank = static_cast<int32_t>(rank);
      row.log2_bytes = use.log2_bytes;
      copy_text("tensor", row.axis);
      copy_text(collective_op_names[use.op], row.op);
      row.calls = use.count.calls;
      row.bytes = use.count.bytes;
      row.seconds = use.count.seconds;
      row.max_s = use.count.longest;
    }
  return rows;
}

SummaryRow summary_row(const char* metric, const char* unit, double value) {
  SummaryRow row;
  copy_text(metric, row.metric);
  copy_text(unit, row.unit);
  row.median = value;
  row.low = row.high = std::nan("");
  return row;
}

std::vector<SummaryRow> summary_rows(const RunSummary& summary) {
  const double seconds = std::max(summary.seconds, 1e-9);
  const auto rate = [&](size_t tokens) { return static_cast<double>(tokens) / seconds; };
  return {
      summary_row("seconds", "s", summary.seconds),
      summary_row("requests", "", static_cast<double>(summary.requests)),
      summary_row("failed", "", static_cast<double>(summary.failed)),
      summary_row("prompt_tokens", "tokens", static_cast<double>(summary.prompt_tokens)),
      summary_row("cached_tokens", "tokens", static_cast<double>(summary.cached_tokens)),
      summary_row("output_tokens", "tokens", static_cast<double>(summary.completion_tokens)),
      summary_row("preemptions", "", static_cast<double>(summary.preemptions)),
      summary_row("out_tok_per_s", "tokens/s", rate(summary.completion_tokens)),
      summary_row("total_tok_per_s", "tokens/s", rate(summary.prompt_tokens + summary.completion_tokens))};
}

}  // namespace

RunRecording::RunRecording(const GenerateOptions& options, const World& world, const JobPlan& plan,
                           const JobFacts& facts, const RankModel& model, GenerateJob& job,
                           RankSeries& series) {
  const std::optional<RecordFiles> files = job.record_files();
  if (!files) return;
  recorder_.emplace(Recorder::Options{files->record, files->log, options.record_limit, options.sync_interval},
                    series);
  for (const auto& [name, text] : provenance_of(options, world, plan, model, job))
    recorder_->text(name, text);
  recorder_->rows(TableId::topology, topology_of(plan, facts, model.info()));
  recorder_->start();
}

void RunRecording::complete(const RunSummary& summary, ExitCode code) {
  if (!recorder_) return;
  recorder_->drain();
  recorder_->text("ended_utc", utc_now());
  recorder_->text("exit_code", fmt::format("{}", static_cast<int>(code)));
  recorder_->rows(TableId::ranks, rank_rows(summary));
  recorder_->rows(TableId::groups, group_rows(summary));
  recorder_->rows(TableId::summary, summary_rows(summary));
  recorder_->complete();
}

}  // namespace maniple
