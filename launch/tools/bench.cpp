#include <kernels/support/host_memory.hpp>
#include <launch/commands/run_identity.hpp>
#include <launch/commands/run_recording.hpp>
#include <launch/options/version.hpp>
#include <launch/output/report.hpp>
#include <launch/process/exit_code.hpp>
#include <launch/process/signals.hpp>
#include <launch/run_directory/disk_wait.hpp>
#include <launch/start/start.hpp>
#include <launch/tools/bench/comm.hpp>
#include <launch/tools/bench/kernels.hpp>
#include <launch/tools/bench/load.hpp>
#include <launch/tools/bench/serving.hpp>
#include <launch/tools/tools.hpp>
#include <runtime/checkpoint/loading/weight_sizes.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/start/start.hpp>

#include <algorithm>

namespace maniple {
namespace {

// What every rank knows before anything is measured.
struct Prepared {
  PlacedJob placed;
  Workload workload;  // rank 0, of a bench that serves requests
};

// Collective. Throws the first refusal.
Prepared prepare(World& world, const BenchOptions& options) {
  Workload workload;
  BetweenSteps between;
  between.agreed = [&](const AgreedJob& agreed) {
    collective_phase(world, [&] {
      if (options.bench == BenchKind::kernels)
        tensor_sizes(options.shapes_of_tp, options.engine, agreed.plan.backend, agreed.model->config);
      if (world.rank() == 0 && serves(options.bench))
        workload = make_workload(options, *agreed.model->files, agreed.model->config.vocab_size,
                                 agreed.plan.max_model_len);
    });
    return std::optional<uint64_t>(0);
  };
  std::optional<PlacedJob> placed = start(world, options, between);
  return {*std::move(placed), std::move(workload)};
}

// The processors of each rank: "cpu 0-3", "gpu 0000:41:00.0".
std::vector<std::string> places_of(const JobFacts& job) {
  const std::vector<std::vector<int>> masks = masks_of(job);
  std::vector<std::string> places;
  for (size_t rank = 0; rank < job.size(); ++rank) {
    const GpuFacts* gpu = job.on_gpus() ? job.gpu_of(rank) : nullptr;
    const RankPlace place =
        share_cpus(masks, job.locations, static_cast<int>(rank), job.options.engine.threads);
    places.push_back(gpu ? "gpu " + gpu->bus
                         : "cpu " + ranges_text(place.cpus.empty() ? masks[rank] : place.cpus));
  }
  return places;
}

std::string header(const World& world, const std::vector<std::string>& places) {
  constexpr size_t most = 64;
  std::string line = fmt::format("# maniple {} git {} | {}", MANIPLE_VERSION, commit(), world.description());
  for (size_t rank = 0; rank < std::min(places.size(), most); ++rank)
    line += fmt::format(" | rank {} {} {}", rank, world.locations()[rank].host, places[rank]);
  return line + (places.size() > most ? fmt::format(" | {} more\n", places.size() - most) : "\n");
}

nlohmann::ordered_json provenance(const World& world, const BenchOptions& options, const JobFacts& job,
                                  const std::vector<std::string>& places) {
  nlohmann::ordered_json json = {{"bench", name_of(options.bench)}};
  json.update(facts_json(job.plan, world));
  json["options"] = options.given;
  for (size_t rank = 0; rank < places.size(); ++rank)
    json["ranks"].push_back(
        {{"rank", rank}, {"host", world.locations()[rank].host}, {"processors", places[rank]}});
  return json;
}

// What the record says of the job. engine: null without one.
JobOnRecord on_record(const World& world, const BenchOptions& options, const Prepared& prepared,
                      const EngineInfo* engine) {
  const bool comm = options.bench == BenchKind::comm;
  JobOnRecord job{fmt::format("bench {}", name_of(options.bench)), options, world, prepared.placed};
  job.dtype = comm ? options.engine.dtype.value_or(DType::fp32) : prepared.placed.agreed.plan.dtype;
  job.engine = engine;
  if (!serves(options.bench)) return job;
  job.input_hash = prepared.workload.hash();
  job.seed = options.seed;
  return job;
}

// Begins the record when the engine, if there is one, is ready. The observer may be null.
using StartRecord = std::function<RunObserver*(const EngineInfo* engine)>;

std::optional<BenchResult> serve(BenchJob& bench, const Prepared& job, const StartRecord& record) {
  const AgreedJob& agreed = job.placed.agreed;
  Engine engine = load(bench.world(), bench.options().engine, agreed, job.placed.place, bench.activity());
  const ServingBench serving{bench, engine, agreed.plan, job.workload, record(&engine.model().info())};
  std::optional<BenchResult> result;
  std::optional<Error> failure;  // on rank 0; the others must know of it before they go on
  try {
    result = bench.options().bench == BenchKind::latency ? bench_latency(serving) : bench_throughput(serving);
  } catch (const CollectiveError& error) {
    failure = error;
  }
  collective_phase(bench.world(), [&] {
    if (failure) throw Error(*failure);
  });
  return result;
}

// Probes before the engine takes its memory, and after it has given it back.
std::optional<BenchResult> serve_between_probes(BenchJob& bench, const Prepared& job, Backend& backend,
                                                const StartRecord& record) {
  const auto& [model, plan] = job.placed.agreed;
  const std::optional<Roofline> before = probe_roofline(bench, backend, job.placed);
  if (!before) return std::nullopt;
  forget_peak_memory();                                           // the record has that of the engine
  std::optional<BenchResult> result = serve(bench, job, record);  // on rank 0
  const std::optional<Roofline> after = probe_roofline(bench, backend, job.placed);
  if (!after || !result) return std::nullopt;
  add_probes(*result, *before, *after);
  add_utilisation(*result,
                  stored_cost(*make_model(model->config, {}), plan.dtype, *model->scheme, plan.kv_dtype),
                  *before);
  return result;
}

std::optional<BenchResult> measure(BenchJob& bench, const Prepared& job, const StartRecord& record) {
  World& world = bench.world();
  const BenchKind kind = bench.options().bench;
  const JobPlan& plan = job.placed.agreed.plan;
  if (kind == BenchKind::latency) return serve(bench, job, record);
  if (kind == BenchKind::load) {
    record(nullptr);
    return bench_load(bench, job.placed);
  }
  Backend backend = make_backend(world, plan, job.placed.place);
  if (kind == BenchKind::throughput) return serve_between_probes(bench, job, backend, record);
  record(nullptr);
  if (kind == BenchKind::kernels) return bench_kernels(bench, job.placed, backend);
  try {
    return bench_comm(bench, plan, backend);
  } catch (...) {
    world.abort_groups();  // before the memory that they use is freed
    throw;
  }
}

// Rank 0, after a stop.
ExitCode stopped(const BenchOptions& options) {
  if (!options.quiet) say(fmt::format("maniple: stopped by {}; nothing was kept\n", InterruptScope::cause()));
  return stopped_bench_code();
}

nlohmann::ordered_json samples_json(const Metric& metric) {
  const Interval interval = median_interval(metric.values);
  return {{"unit", metric.unit},
          {"values", metric.values},
          {"median", interval.median},
          {"low", interval.low},
          {"high", interval.high}};
}

std::vector<SampleRow> sample_rows(const std::vector<Metric>& metrics) {
  std::vector<SampleRow> rows;
  for (const Metric& metric : metrics)
    for (size_t repeat = 0; repeat < metric.values.size(); ++repeat) {
      SampleRow& row = rows.emplace_back(SampleRow{.repeat = repeat, .value = metric.values[repeat]});
      copy_text(metric.name, row.metric);
      copy_text(metric.unit, row.unit);
    }
  return rows;
}

std::vector<SummaryRow> median_rows(const std::vector<Metric>& metrics) {
  std::vector<SummaryRow> rows;
  for (const Metric& metric : metrics) {
    const Interval interval = median_interval(metric.values);
    SummaryRow& row = rows.emplace_back(SummaryRow{
        .n = metric.values.size(), .median = interval.median, .low = interval.low, .high = interval.high});
    copy_text(metric.name, row.metric);
    copy_text(metric.unit, row.unit);
  }
  return rows;
}

// Rank 0, while no other rank waits for it.
ExitCode report(BenchJob& bench, nlohmann::ordered_json json, const BenchResult& result,
                std::optional<RunRecording>& recording) {
  const BenchOptions& options = bench.options();
  const Verdict verdict = judge(result.evidence);
  bench.print(result.last_line + result_line(verdict));
  bench.check_output();
  json.update(result.numbers);
  json["verdict"] = name_of(verdict.quality);
  json["reason"] = verdict.reason;
  for (const Metric& metric : result.samples) json["samples"][metric.name] = samples_json(metric);
  bench.write_json(json);
  const ExitCode code = bench_code(verdict.quality == Quality::invalid, options.require_valid);
  if (recording) {
    const DiskWait wait(&bench.activity().disk);
    recording->complete(
        result.run, code,
        {.samples = sample_rows(result.samples),
         .medians = median_rows(result.samples),
         .kernels = result.kernels,
         .roofline = result.roofline,
         .texts = {{"verdict", std::string(name_of(verdict.quality))}, {"verdict_reason", verdict.reason}}});
  }
  if (code != ExitCode::complete)
    say(error_block(Error(code, "the result is INVALID: " + verdict.reason,
                          "--require-valid was given: numbers that may be wrong are a failure",
                          "look at the table, and run it again on machines without other work")));
  return code;
}

ExitCode bench(World& world, const BenchOptions& options, RankActivity& activity, RankSeries& series) {
  BenchJob bench(world, options, activity);
  const Prepared job = prepare(world, options);
  std::optional<InterruptScope> interrupts;
  if (world.rank() == 0) interrupts.emplace();
  const JobFacts& facts = job.placed.preflight.job;
  const std::vector<std::string> places = world.rank() == 0 ? places_of(facts) : std::vector<std::string>();
  bench.print(header(world, places));
  std::optional<RunRecording> recording;
  const auto record = [&](const EngineInfo* engine) -> RunObserver* {
    if (world.rank() != 0 || !options.record) return nullptr;
    const Recorder::Options files{
        .file = *options.record, .log = *options.record + ".log", .keeps_unfinished = false};
    return recording.emplace(files, on_record(world, options, job, engine), series).observer();
  };
  const std::optional<BenchResult> result = measure(bench, job, record);
  activity.phase = Phase::end;
  if (world.rank() != 0) return ExitCode::complete;
  bench.check_output();
  return result ? report(bench, provenance(world, options, facts, places), *result, recording)
                : stopped(options);
}

}  // namespace

ExitCode run_bench(World& world, const BenchOptions& options, const Supervision& supervision) {
  RankSeries series(world.locations()[static_cast<size_t>(world.rank())]);
  return watched(world, options, supervision, &series, [&](HealthMonitor& health) {
    return health.supervise([&] { return bench(world, options, health.activity(), series); });
  });
}

}  // namespace maniple
