#include <kernels/support/counted.hpp>
#include <launch/commands/commands.hpp>
#include <launch/commands/generate_job.hpp>
#include <launch/commands/run_identity.hpp>
#include <launch/commands/run_recording.hpp>
#include <launch/output/progress.hpp>
#include <launch/output/report.hpp>
#include <launch/process/signals.hpp>
#include <launch/run_directory/disk_wait.hpp>
#include <launch/start/start.hpp>
#include <launch/supervision/health_monitor.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/start/start.hpp>

#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace maniple {
namespace {

// For messages that are neither warnings nor errors.
void tell(const GenerateOptions& options, const std::string& text) {
  if (!options.quiet) say(text);
}

// The completion of a single prompt goes to stdout as bare text, where nothing stands beside the text.
bool is_bare(const GenerateOptions& options) {
  return options.prompt && !options.out && !options.sampling.logprobs && options.reasoning == "off";
}

// On a terminal the bare text of one answer appears while it is generated.
bool streams(const GenerateOptions& options) {
  return is_bare(options) && options.sampling.n.value_or(1) == 1 && ::isatty(STDOUT_FILENO) != 0;
}

// The other ranks have ended by now. A failure is a CollectiveError, because no rank waits for rank 0.
ExitCode close_results(GenerateJob& job, const RunSummary& summary, size_t failed,
                       const std::string& record) try {
  return job.close(summary, failed, record);
} catch (const Error& error) {
  throw CollectiveError(error);
}

std::optional<double> seconds_to_limit(const StopClock* clock) {
  const std::optional<WallClock::time_point> end = clock ? clock->end() : std::nullopt;
  return end ? std::optional(std::chrono::duration<double>(*end - WallClock::now()).count()) : std::nullopt;
}

// Stores finished results even if it fails.
RunSummary run_requests(Engine& engine, const World& world, const GenerateOptions& options, GenerateJob& job,
                        Results& results, const StopClock* clock, RunObserver* observer) {
  RequestReader::Options reading = job.reader_options(engine.model());
  reading.defaults.stream = streams(options);
  RequestFeed feed(job.lines(), reading, results);
  const auto start = ProgressLine::Clock::now();
  const std::optional<size_t> columns = terminal_columns();
  // A progress line would appear in the middle of the text.
  const bool shows_progress = !options.quiet && !(streams(options) && columns);
  ProgressLine line(columns, start);
  const InterruptScope interrupts;
  const uint64_t done_before = job.done_before();
  const auto on_progress = [&](const Progress& progress) {
    const auto now = ProgressLine::Clock::now();
    const JobCounts counts{job.requests(), done_before + results.done(), done_before, results.failed()};
    const JobProgress job_now =
        job_progress(progress, counts, std::chrono::duration<double>(now - start).count(),
                     seconds_to_limit(clock), world.locations());
    results.progress(job_now);
    if (shows_progress) say(line.update(job_now, now));
  };
  if (!options.follow) feed.fill(size_t{2} * options.engine.max_num_seqs * static_cast<size_t>(world.size()));
  std::optional<CollectiveError> failure;
  RunSummary summary;
  try {
    summary = engine.run(feed, results, on_progress, InterruptScope::flag(), observer);
  } catch (const CollectiveError& error) {
    failure = error;
  }
  if (shows_progress) say(line.clear());
  try {
    results.drain();
  } catch (const Error& error) {  // the other ranks have ended
    if (!failure) failure = CollectiveError(error);
  }
  if (failure) throw CollectiveError(*failure);
  if (summary.interrupted) tell(options, fmt::format("maniple: stopped by {}\n", InterruptScope::cause()));
  return summary;
}

// Launchers also send SIGTERM after the death of a rank. It counts as a stop only
// if every rank has a peer on its node that would have reported its death first.
bool peers_report_deaths(const World& world) {
  return world.size() == 1 || std::ranges::all_of(world.locations(), [](const RankLocation& location) {
           return location.local_size > 1;
         });
}

// Told once, at the end.
std::string cut_text(size_t cut) {
  if (cut == 0) return {};
  return fmt::format(
      "maniple: note: {} ended at {} tokens, the limit where none is stated; for more: --max-tokens\n",
      counted(cut, "completion"), SamplingParams{}.max_tokens);
}

ExitCode serve(Engine& engine, const World& world, const GenerateOptions& options, const JobPlan& plan,
               RankActivity& activity, GenerateJob& job, RunRecording& recording,
               const Supervision& supervision) {
  tell(options, banner(options.engine, plan, engine.model().info(), world, job.seed()) + job.resume_text());
  for (const std::string& warning : engine.model().warnings())
    say(fmt::format("maniple: warning: {}\n", warning));
  RunSummary summary;
  size_t done = 0, failed = 0, cut = 0;
  {
    Results results(job.open_store(peers_report_deaths(world)), engine.model().tokenizer(), is_bare(options),
                    &activity.disk);
    summary = run_requests(engine, world, options, job, results, supervision.clock, recording.observer());
    done = results.done();
    failed = results.failed();
    cut = results.cut_at_default();
    if (options.prompt && failed > 0) say(fmt::format("maniple: error: {}\n", results.last_error()));
  }
  supervision.log.write("end: " + times_text(summary.ranks[0]));
  const ExitCode code =
      close_results(job, summary, failed, run_record(plan, engine.model().info(), summary, world));
  {
    const DiskWait wait(&activity.disk);
    recording.complete(summary, code);
  }
  tell(options, summary_text(summary, done, failed, plan.max_model_len, world.locations()) + cut_text(cut) +
                    job.outcome_text(code));
  supervision.log.write(fmt::format("exit {}", static_cast<int>(job.process_exit_code(code))));
  return job.process_exit_code(code);
}

// What this rank shows of itself while it runs.
struct Vitals {
  RankActivity& activity;
  RankSeries& series;
};

ExitCode load_and_serve(World& world, const GenerateOptions& options, const PlacedJob& placed, Vitals& vitals,
                        std::optional<GenerateJob>& job, const Supervision& supervision) {
  supervision.log.write("load");
  Engine engine = load(world, options.engine, placed.agreed, placed.place, vitals.activity);
  const EngineInfo& info = engine.model().info();
  supervision.faults.set_gpus(info.gpus);
  supervision.log.write(fmt::format("serving: {} in {:.1f} s, {}, {}", info.architecture, info.load_seconds,
                                    info.backend, counted(info.num_blocks, "KV block")));
  if (job) {
    const JobOnRecord on_record{
        "generate",        options,          world, placed, placed.agreed.plan.dtype, &info,
        job->input_hash(), job->seed().value};
    RunRecording recording(job->recording(), on_record, vitals.series);
    return serve(engine, world, options, placed.agreed.plan, vitals.activity, *job, recording, supervision);
  }
  supervision.log.write("end: " + times_text(engine.run_worker()));
  return ExitCode::complete;
}

// Rank 0 alone knows the folder of this job in the run directory.
void share_folder(World& world, const std::optional<GenerateJob>& job, const Supervision& supervision) {
  std::string name = job ? job->folder().string() : "";
  world.broadcast_bytes(name, 0);
  const std::filesystem::path folder(name);
  if (folder.empty()) return;
  supervision.faults.record_in(folder);
  std::error_code ignored;
  std::filesystem::create_directory(folder / logs_name, ignored);
  supervision.log.open(folder / logs_name / fmt::format("rank-{:04}.log", world.rank()));
}

// From here on SIGTERM sets STATUS to stopped.
void arm_stopped_marker(std::optional<StoppedMarker>& marker, const GenerateJob& job, const World& world,
                        RankActivity& activity) {
  const std::filesystem::path folder = job.folder();
  if (folder.empty() || !peers_report_deaths(world)) return;
  job.write_job_file(stopped_marker_name,
                     status_text({RunState::stopped, static_cast<int>(ExitCode::stopped)}));
  marker.emplace(folder / stopped_marker_name, folder.parent_path().parent_path() / status_name,
                 folder / fault_record_name, activity.phase, job.process_exit_code(ExitCode::stopped));
}

std::string start_text(const World& world) {
  return fmt::format("start: rank {} of {} on {}, process {}, maniple " MANIPLE_VERSION ", {}", world.rank(),
                     world.size(), world.locations()[static_cast<size_t>(world.rank())].host, ::getpid(),
                     world.description());
}

// Collective. Opens input, output and run directory on rank 0. The bytes that its results will take, or nothing where earlier jobs
// have done all requests.
std::optional<uint64_t> open_job(World& world, const GenerateOptions& options, const JobPlan& plan,
                                 RankActivity& activity, std::optional<GenerateJob>& job,
                                 const Supervision& supervision) {
  collective_phase(world, [&] {
    if (world.rank() == 0) job.emplace(options, plan, world.locations()[0].host, activity.disk);
  });
  share_folder(world, job, supervision);
  const bool over = gather_values(world, job && job->already_over() ? 1 : 0).front() == 1;
  if (over && job) tell(options, job->resume_text());
  return over ? std::nullopt : std::optional<uint64_t>(job ? job->expected_bytes() : 0);
}

void report_start(World& world, const GenerateOptions& options, const Preflight& preflight,
                  const std::optional<GenerateJob>& job) {
  constexpr size_t max_lines = 16;
  if (job) tell(options, job->start_note());
  report_checks(world, preflight, options.quiet);
  collective_phase(world, [&] {
    if (!job) return;
    if (world.size() > 1) tell(options, rank_table(preflight.job, max_lines));
    job->write_job_file("topology.txt", rank_table(preflight.job));
  });
}

ExitCode generate(World& world, const GenerateOptions& options, Vitals vitals,
                  std::optional<GenerateJob>& job, const Supervision& supervision) {
  supervision.log.write(start_text(world));
  std::optional<StoppedMarker> stopped_marker;
  BetweenSteps between;
  between.agreed = [&](const AgreedJob& agreed) {
    const auto bytes = open_job(world, options, agreed.plan, vitals.activity, job, supervision);
    collective_phase(world, [&] {
      if (bytes && job) arm_stopped_marker(stopped_marker, *job, world, vitals.activity);
    });
    return bytes;
  };
  between.checked = [&](const PlacedJob& checked) {
    report_start(world, options, checked.preflight, job);
    return true;
  };
  const std::optional<PlacedJob> placed = start(world, options, between);
  if (!placed) return job ? *job->already_over() : ExitCode::complete;
  supervision.log.write(fmt::format(
      "threads: {}, CPUs: {}", placed->place.threads,
      placed->place.cpus.empty() ? "shared" : fmt::format("{}", fmt::join(placed->place.cpus, ","))));
  return load_and_serve(world, options, *placed, vitals, job, supervision);
}

}  // namespace

ExitCode run_generate(World& world, const GenerateOptions& options, const Supervision& supervision) {
  RankSeries series(world.locations()[static_cast<size_t>(world.rank())]);
  return watched(world, options, supervision, &series, [&](HealthMonitor& health) {
    std::optional<GenerateJob> job;  // rank 0; the ranks are watched while it closes its files
    return health.supervise(
        [&] {
          return generate(world, options, {health.activity(), series}, job, supervision);
        },
        [&](ExitCode code) {
          if (job) job->give_up(code);
        });
  });
}

}  // namespace maniple
