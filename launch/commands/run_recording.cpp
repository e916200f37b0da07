#include <launch/commands/run_identity.hpp>
#include <launch/commands/run_recording.hpp>
#include <launch/options/version.hpp>
#include <launch/output/report.hpp>

#include <fmt/ranges.h>

#include <cmath>
#include <set>

namespace maniple {

namespace fs = std::filesystem;

namespace {

nlohmann::ordered_json options_json(const JobOnRecord& job) {
  const EngineOptions& engine = job.options.engine;
  const JobPlan& plan = job.placed.agreed.plan;
  nlohmann::ordered_json in_force = {{"ranks", plan.grid.replica_ranks() * plan.grid.data},
                                     {"tp", plan.grid.tensor},
                                     {"ep", plan.grid.expert},
                                     {"cp", plan.grid.context},
                                     {"pp", plan.grid.pipeline},
                                     {"data", plan.grid.data},
                                     {"dtype", name_of(job.dtype)},
                                     {"threads", job.placed.place.threads}};
  if (const EngineInfo* const info = job.engine)
    in_force.update({{"backend", info->backend},
                     {"kv_cache_dtype", name_of(plan.kv_dtype)},
                     {"block_size", plan.block_tokens},
                     {"kv_blocks", info->num_blocks},
                     {"kv_window_blocks", info->window_blocks},
                     {"max_model_len", plan.max_model_len},
                     {"max_num_seqs", engine.max_num_seqs},
                     {"max_num_batched_tokens", engine.max_num_batched_tokens},
                     {"steps_in_flight", plan.steps_in_flight},
                     {"step_tokens", plan.step_tokens},
                     {"prefix_cache", engine.prefix_cache},
                     {"schedule", engine.schedule == Policy::mixed ? "mixed" : "prefill-first"},
                     {"weights", weights_text(engine)},
                     {"quantisation", info->quantisation}});
  return {{"given", job.options.given}, {"in_force", in_force}};
}

std::string hash_text(std::optional<uint64_t> hash) { return hash ? fmt::format("{:016x}", *hash) : ""; }

Texts provenance_of(const JobOnRecord& job) {
  Texts texts = machine_provenance(job.options.launch.environment);
  const EngineOptions& engine = job.options.engine;
  std::set<std::string> hosts;
  for (const RankLocation& location : job.world.locations()) hosts.insert(location.host);
  texts["command"] = job.command;
  texts["cpu_path"] = instruction_path_of(job.placed.agreed.plan.backend);
  texts["options"] = options_json(job).dump();
  if (!engine.model.empty()) {
    const ModelFiles files(engine.model);
    texts["model_path"] = engine.model.string();
    texts["model_hash"] = hash_text(model_hash(files));
    texts["config_json"] = files.text("config.json");
  }
  texts["input_hash"] = hash_text(job.input_hash);
  texts["dtype"] = name_of(job.dtype);
  texts["kv_cache_dtype"] = job.engine ? name_of(job.placed.agreed.plan.kv_dtype) : "";
  const nlohmann::ordered_json facts = facts_json(job.placed.agreed.plan, job.world);
  for (const char* name : {"mpi", "expert", "context", "pipeline", "stages"})
    texts[name] = facts[name].is_string() ? facts[name].get<std::string>() : facts[name].dump();
  texts["repro_level"] = level_of(job.placed.agreed.plan);
  texts["seed"] = job.seed ? fmt::format("{}", *job.seed) : "";
  texts["job"] = job.options.launch.job;
  texts["hosts"] = fmt::format("{}", fmt::join(hosts, " "));
  texts["started_utc"] = utc_now();
  return texts;
}

std::vector<TopologyRow> topology_of(const JobFacts& facts, const EngineInfo* engine) {
  std::vector<TopologyRow> rows(facts.ranks.size());
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const RankLocation& location = facts.locations[rank];
    const GridPosition position = position_in(facts.plan.grid, static_cast<int>(rank));
    TopologyRow& row = rows[rank];
    row.rank = static_cast<int32_t>(rank);
    row.node = location.node;
    row.local_rank = location.local_rank;
    row.tensor = position.tensor;
    row.pipeline = position.pipeline;
    row.data = position.data;
    const RankPlan plan = facts.plan.rank(static_cast<int>(rank));
    row.context = static_cast<int32_t>(plan.context().owner);
    row.expert = plan.expert().rank;
    copy_text(location.host, row.host);
    copy_text(ranges_text(facts.ranks[rank].cpus), row.cpus);
    if (engine) copy_text(engine->gpus[rank], row.gpu_uuid);
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
      copy_text(name_of(static_cast<GroupAxis>(use.axis)), row.axis);
      copy_text(collective_op_names[use.op], row.op);
      row.calls = use.count.calls;
      row.bytes = use.count.bytes;
      row.seconds = use.count.seconds;
      row.max_s = use.count.longest;
    }
  return rows;
}

SummaryRow summary_row(const char* metric, const char* unit, double value) {
  SummaryRow row{.n = 1, .median = value, .low = std::nan(""), .high = std::nan("")};
  copy_text(metric, row.metric);
  copy_text(unit, row.unit);
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

nlohmann::ordered_json facts_json(const JobPlan& plan, const World& world) {
  return {{"version", MANIPLE_VERSION},       {"commit", commit()},
          {"mpi", world.description()},       {"tensor", plan.grid.tensor},
          {"expert", plan.grid.expert},       {"context", plan.grid.context},
          {"pipeline", plan.grid.pipeline},   {"stages", stages_text(plan)},
          {"data", plan.grid.data},           {"repro", name_of(plan.repro)},
          {"repro_reason", plan.repro_reason}};
}

std::string run_record(const JobPlan& plan, const EngineInfo& info, const RunSummary& summary,
                       const World& world) {
  nlohmann::ordered_json record = facts_json(plan, world);
  record.update({{"ranks", world.size()},
                 {"backend", info.backend},
                 {"sums", info.sums},
                 {"kv_blocks", info.num_blocks},
                 {"kv_window_blocks", info.window_blocks},
                 {"block_size", plan.block_tokens},
                 {"interrupted", summary.interrupted},
                 {"requests", summary.requests},
                 {"prompt_tokens", summary.prompt_tokens},
                 {"cached_tokens", summary.cached_tokens},
                 {"completion_tokens", summary.completion_tokens},
                 {"preemptions", summary.preemptions},
                 {"stopped", summary.stopped},
                 {"reached_length", summary.reached_length},
                 {"ended_by_context", summary.ended_by_context},
                 {"ended_by_kv_cache", summary.ended_by_cache},
                 {"load_seconds", info.load_seconds},
                 {"seconds", summary.seconds}});
  record["experts"] = nlohmann::ordered_json::parse(experts_json(summary.experts));
  for (size_t rank = 0; rank < summary.ranks.size(); ++rank) {
    const RankTimes& times = summary.ranks[rank];
    record["rank_seconds"].push_back({{"host", world.locations()[rank].host},
                                      {"prefill", times.prefill},
                                      {"decode", times.decode},
                                      {"communication", times.communication},
                                      {"idle", times.idle}});
  }
  return record.dump();
}

RunRecording::RunRecording(const std::optional<Recorder::Options>& files, const JobOnRecord& job,
                           RankSeries& series) {
  if (!files) return;
  recorder_.emplace(*files, series);
  for (const auto& [name, text] : provenance_of(job)) recorder_->text(name, text);
  recorder_->rows(TableId::topology, topology_of(job.placed.preflight.job, job.engine));
  recorder_->start();
}

void RunRecording::complete(const RunSummary& summary, ExitCode code) {
  complete(summary, code,
           {.medians = summary_rows(summary), .texts = {{"experts", experts_json(summary.experts)}}});
}

void RunRecording::complete(const RunSummary& summary, ExitCode code, const BenchRows& bench) {
  if (!recorder_) return;
  recorder_->drain();
  recorder_->rows(TableId::kernels, bench.kernels);
  recorder_->rows(TableId::roofline, bench.roofline);
  Texts texts = bench.texts;
  texts["ended_utc"] = utc_now();
  texts["exit_code"] = fmt::format("{}", static_cast<int>(code));
  for (const auto& [name, text] : texts) recorder_->text(name, text);
  recorder_->rows(TableId::ranks, rank_rows(summary));
  recorder_->rows(TableId::groups, group_rows(summary));
  recorder_->rows(TableId::samples, bench.samples);
  recorder_->rows(TableId::summary, bench.medians);
  recorder_->complete();
}

}  // namespace maniple
