#include <kernels/support/host_memory.hpp>
#include <launch/bench/comm.hpp>
#include <launch/bench/kernels.hpp>
#include <launch/bench/load.hpp>
#include <launch/bench/serving.hpp>
#include <launch/commands/commands.hpp>
#include <launch/commands/run_identity.hpp>
#include <launch/commands/run_recording.hpp>
#include <launch/options/option_names.hpp>
#include <launch/options/version.hpp>
#include <launch/output/report.hpp>
#include <launch/preflight/preflight.hpp>
#include <launch/process/signals.hpp>
#include <launch/run_directory/disk_wait.hpp>
#include <launch/supervision/health_monitor.hpp>
#include <runtime/collective_phase.hpp>

#include <algorithm>
#include <csignal>

namespace maniple {
namespace {

// What every rank knows before anything is measured.
struct Prepared {
  JobOptions options;  // with what the ranks have agreed on
  std::optional<SharedModel> model;
  JobPlan plan;
  Workload workload;  // rank 0, of a bench that serves requests
  Preflight preflight;
};

bool serves(const BenchOptions& options) {
  return options.bench == BenchKind::throughput || options.bench == BenchKind::latency;
}

// Collective. Throws the first refusal.
Prepared prepare(World& world, const BenchOptions& asked) {
  Prepared job;
  job.options = asked;
  EngineOptions& engine = job.options.engine;
  job.model = agree_on_job(world, job.options);
  if (!serves(asked)) serve_nothing(engine);
  collective_phase(world, [&] {
    const ModelConfig* config = job.model ? &job.model->config : nullptr;
    job.plan = plan_or_refuse(world.locations(), engine, config);
    if (asked.bench != BenchKind::kernels) return;
    tensor_sizes(asked.shapes_of_tp, engine, *config);
    job.plan.needs.clear();  // of whole models
  });
  if (asked.bench == BenchKind::load) shrink_cache(engine, job.plan);
  collective_phase(world, [&] {
    if (world.rank() == 0 && serves(asked))
      job.workload =
          make_workload(asked, *job.model->files, job.model->config.vocab_size, job.plan.max_model_len);
  });
  job.preflight = run_preflight(world, job.options, job.plan);
  engine.backend.threads = job.preflight.share.threads;
  engine.backend.cpus = job.preflight.share.cpus;
  collective_phase(world, [&] {
    if (world.rank() != 0) return;
    say(preflight_text(job.preflight.results, asked.quiet));
    refuse(job.preflight.results);
  });
  return job;
}

// The processors of each rank: "cpu 0-3", "gpu 0000:41:00.0".
std::vector<std::string> places_of(const JobFacts& job) {
  const std::vector<std::vector<int>> masks = masks_of(job);
  std::vector<std::string> places;
  for (size_t rank = 0; rank < job.size(); ++rank) {
    const GpuFacts* gpu = job.on_gpus() ? job.gpu_of(rank) : nullptr;
    const CpuShare share = share_cpus(masks, job.locations, static_cast<int>(rank), job.options.threads);
    places.push_back(gpu ? "gpu " + gpu->bus
                         : "cpu " + ranges_text(share.cpus.empty() ? masks[rank] : share.cpus));
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
  JobOnRecord job{fmt::format("bench {}", name_of(options.bench)), prepared.options, world,
                  prepared.preflight.job};
  job.dtype = comm ? options.dtype.value_or(DType::fp32) : prepared.options.engine.dtype;
  job.engine = engine;
  if (!serves(options)) return job;
  job.input_hash = prepared.workload.hash();
  job.seed = options.seed;
  return job;
}

// Begins the record when the engine, if there is one, is ready. The observer may be null.
using StartRecord = std::function<RunObserver*(const EngineInfo* engine)>;

std::optional<BenchResult> serve(BenchJob& bench, const Prepared& job, const StartRecord& record) {
  Engine engine(bench.world(), job.options.engine, job.plan, *job.model, bench.activity());
  const ServingBench serving{bench, engine, job.plan, job.workload, record(&engine.model().info())};
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
  const EngineOptions& options = job.options.engine;
  const std::optional<Roofline> before = probe_roofline(bench, backend, options);
  if (!before) return std::nullopt;
  forget_peak_memory();                                           // the record has that of the engine
  std::optional<BenchResult> result = serve(bench, job, record);  // on rank 0
  const std::optional<Roofline> after = probe_roofline(bench, backend, options);
  if (!after || !result) return std::nullopt;
  add_probes(*result, *before, *after);
  const std::unique_ptr<const QuantScheme> scheme = scheme_of(job.model->config);
  add_utilisation(
      *result,
      cost_of(*make_model(job.model->config, {}), options.dtype, *scheme, kv_cache_dtype(options, *scheme)),
      *before);
  return result;
}

std::optional<BenchResult> measure(BenchJob& bench, const Prepared& job, const StartRecord& record) {
  World& world = bench.world();
  const EngineOptions& options = job.options.engine;
  const BenchKind kind = bench.options().bench;
  if (kind == BenchKind::latency) return serve(bench, job, record);
  if (kind == BenchKind::load) {
    record(nullptr);
    return bench_load(bench, job.plan, options, *job.model);
  }
  Backend backend;
  collective_phase(world, [&] { backend = backend_of(world, options, job.preflight.share); });
  if (kind == BenchKind::throughput) return serve_between_probes(bench, job, backend, record);
  record(nullptr);
  if (kind == BenchKind::kernels) return bench_kernels(bench, options, job.model->config, backend);
  try {
    return bench_comm(bench, job.plan, backend);
  } catch (...) {
    world.abort_groups();  // before the memory that they use is freed
    throw;
  }
}

// Rank 0, after a stop.
ExitCode stopped(const BenchOptions& options) {
  if (!options.quiet) say(fmt::format("maniple: stopped by {}; nothing was kept\n", InterruptScope::cause()));
  return InterruptScope::flag() == SIGALRM ? ExitCode::stopped : InterruptScope::interrupted_code();
}

nlohmann::ordered_json samples_json(const Metric& metric) {
  const Interval interval = median_interval(metric.values);
  return {{"unit", metric.unit},
          {"values", metric.values},
          {"median", interval.median},
          {"low", interval.low},
          {"high", interval.high}};
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
  const ExitCode code = exit_code_of(verdict, options.require_valid);
  if (recording) {
    const DiskWait wait(&bench.activity().disk);
    recording->complete(result, verdict, code);
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
  const JobFacts& facts = job.preflight.job;
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

ExitCode run_bench(World& world, const BenchOptions& options, const Reporters& reporters) {
  RankSeries series(world.locations()[static_cast<size_t>(world.rank())]);
  HealthMonitor health(
      world, reporters.peers, Deadlines::within(options.deadline),
      [&](const FaultReport& fault) { reporters.faults.report(fault); }, &series);
  reporters.start.reset();
  return health.supervise([&] { return bench(world, options, health.activity(), series); });
}

}  // namespace maniple
