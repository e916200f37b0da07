#include <kernels/support/counted.hpp>
#include <launch/commands/commands.hpp>
#include <launch/generate_job.hpp>
#include <launch/option_names.hpp>
#include <launch/preflight/preflight.hpp>
#include <launch/progress.hpp>
#include <launch/report.hpp>
#include <launch/run_identity.hpp>
#include <launch/signals.hpp>
#include <runtime/agreement.hpp>
#include <runtime/control/health.hpp>
#include <runtime/device_choice.hpp>

#include <fmt/ranges.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>

namespace maniple {
namespace {

std::optional<size_t> terminal_columns() {
  struct winsize size {};
  if (::isatty(STDERR_FILENO) == 0) return std::nullopt;
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// What is neither a warning nor an error.
void tell(const GenerateOptions& options, const std::string& text) {
  if (!options.quiet) say(text);
}

// A single prompt's completion is shown as bare text where somebody reads it and nothing would be lost.
bool is_bare(const GenerateOptions& options) {
  return options.prompt && !options.out && !options.sampling.logprobs;
}

// Its text appears as it is generated where somebody may be watching.
bool streams(const GenerateOptions& options) { return is_bare(options) && ::isatty(STDOUT_FILENO) != 0; }

// The other ranks have ended when this fails: no one waits for rank 0.
ExitCode close_agreed(GenerateJob& job, const RunSummary& summary, size_t failed, const std::string& record) {
  try {
    return job.close(summary, failed, InterruptScope::interrupted_code(), record);
  } catch (const Error& error) {
    throw AgreedError(error);
  }
}

std::optional<double> seconds_to_limit(const StopClock* clock) {
  const std::optional<WallClock::time_point> end = clock ? clock->end() : std::nullopt;
  return end ? std::optional(std::chrono::duration<double>(*end - WallClock::now()).count()) : std::nullopt;
}

// Stores what has finished also when this fails.
RunSummary run_requests(Engine& engine, const World& world, const GenerateOptions& options, GenerateJob& job,
                        Results& results, const StopClock* clock) {
  RequestReader::Setting setting = job.reader_setting(engine.model());
  setting.defaults.stream = streams(options);
  RequestFeed feed(job.lines(), setting, results);
  const auto start = ProgressLine::Clock::now();
  const std::optional<size_t> columns = terminal_columns();
  // A line that updates itself would be in the midst of the text.
  const bool shows_progress = !options.quiet && !(streams(options) && columns);
  ProgressLine line(columns, start);
  const InterruptScope interrupts;
  const uint64_t done_before = job.done_before();
  const auto on_progress = [&](const Progress& progress) {
    const auto now = ProgressLine::Clock::now();
    const JobCounts counts{job.requests(), done_before + results.done(), done_before, results.failed()};
    const JobProgress standing =
        job_progress(progress, counts, std::chrono::duration<double>(now - start).count(),
                     seconds_to_limit(clock), world.places());
    results.progress(standing);
    if (shows_progress) say(line.update(standing, now));
  };
  std::optional<AgreedError> failure;
  RunSummary summary;
  try {
    summary = engine.run(feed, results, on_progress, InterruptScope::flag());
  } catch (const AgreedError& error) {
    failure = error;
  }
  if (shows_progress) say(line.clear());
  try {
    results.drain();
  } catch (const Error& error) {  // the other ranks have ended
    if (!failure) failure = AgreedError(error);
  }
  if (failure) throw AgreedError(*failure);
  if (summary.interrupted) tell(options, fmt::format("maniple: stopped by {}\n", InterruptScope::cause()));
  return summary;
}

// A launcher's SIGTERM counts as a stop only where the death of any rank would have been told before.
bool deaths_are_told(const World& world) {
  return world.size() == 1 ||
         std::ranges::all_of(world.places(), [](const Place& place) { return place.local_size > 1; });
}

ExitCode serve(Engine& engine, const World& world, const GenerateOptions& options, const JobPlan& plan,
               Pulse& pulse, GenerateJob& job, const Reporters& reporters) {
  tell(options, banner(options.engine, plan, engine.model().info(), world, job.seed()) + job.resume_text());
  for (const std::string& warning : engine.model().generation_config().warnings)
    say(fmt::format("maniple: warning: {}\n", warning));
  RunSummary summary;
  size_t done = 0, failed = 0;
  {
    Results results(job.open_store(deaths_are_told(world)), engine.model().tokenizer(), is_bare(options),
                    &pulse.disk);
    summary = run_requests(engine, world, options, job, results, reporters.clock);
    done = results.done();
    failed = results.failed();
    if (options.prompt && failed > 0) say(fmt::format("maniple: error: {}\n", results.last_error()));
  }
  reporters.log.write("end: " + times_text(summary.ranks[0]));
  const ExitCode code =
      close_agreed(job, summary, failed, run_record(plan, engine.model().info(), summary, world));
  tell(options,
       summary_text(summary, done, failed, plan.max_model_len, world.places()) + job.outcome_text(code));
  reporters.log.write(fmt::format("exit {}", static_cast<int>(job.shown(code))));
  return job.shown(code);
}

ExitCode load_and_serve(World& world, const GenerateOptions& options, const JobPlan& plan, SharedModel model,
                        Pulse& pulse, std::optional<GenerateJob>& job, const Reporters& reporters) {
  reporters.log.write("load");
  Engine engine(world, options.engine, plan, std::move(model), pulse);
  const EngineInfo& info = engine.model().info();
  reporters.faults.know_gpus(info.gpus);
  reporters.log.write(fmt::format("serving: {} in {:.1f} s, {}, {}", info.architecture, info.load_seconds,
                                  info.backend, counted(info.num_blocks, "KV block")));
  if (job) return serve(engine, world, options, plan, pulse, *job, reporters);
  reporters.log.write("end: " + times_text(engine.obey()));
  return ExitCode::complete;
}

// Throws what refuses the start.
void report_preflight(const Preflight& preflight, const GenerateOptions& options, const GenerateJob& job) {
  constexpr size_t most_lines = 16;
  tell(options, job.start_note());
  say(preflight_text(preflight.results, options.quiet));
  refuse(preflight.results);
  if (preflight.situation.size() > 1) tell(options, rank_table(preflight.situation, most_lines));
  job.keep("topology.txt", rank_table(preflight.situation));
}

std::string instruction_path(const BackendOptions& backend) {
  if (backend.kind == BackendKind::reference) return "reference";
  return std::string(backend.kind == BackendKind::cuda ? "cuda" : name_of(backend.cpu_path));
}

// Rank 0 alone knows the folder of this job in the run directory.
void share_folder(World& world, const std::optional<GenerateJob>& job, const Reporters& reporters) {
  std::string name = job ? job->folder().string() : "";
  world.broadcast_bytes(name, 0);
  const std::filesystem::path folder(name);
  if (folder.empty()) return;
  reporters.faults.record_in(folder);
  std::error_code ignored;
  std::filesystem::create_directory(folder / logs_name, ignored);
  reporters.log.open(folder / logs_name / fmt::format("rank-{:04}.log", world.rank()));
}

// From here on SIGTERM leaves it.
void leave_word(std::optional<LastWord>& word, const GenerateJob& job, const World& world, Pulse& pulse) {
  const std::filesystem::path folder = job.folder();
  if (folder.empty() || !deaths_are_told(world)) return;
  job.keep(stop_word_name, text_of({RunState::stopped, static_cast<int>(ExitCode::stopped)}));
  word.emplace(folder / stop_word_name, folder.parent_path().parent_path() / status_name,
               folder / fault_record_name, pulse.phase, job.shown(ExitCode::stopped));
}

std::string start_text(const World& world) {
  return fmt::format("start: rank {} of {} on {}, process {}, maniple " MANIPLE_VERSION ", {}", world.rank(),
                     world.size(), world.places()[static_cast<size_t>(world.rank())].host, ::getpid(),
                     world.description());
}

ExitCode generate(World& world, const GenerateOptions& options, Pulse& pulse, std::optional<GenerateJob>& job,
                  const Reporters& reporters) {
  reporters.log.write(start_text(world));
  GenerateOptions settled = options;
  EngineOptions& engine = settled.engine;
  engine.backend.kind = common_backend(world, engine.backend.kind);
  if (engine.backend.cpu_path == CpuPath::automatic) engine.backend.cpu_path = common_cpu_path(world);
  agree(world, [&] { plan_or_refuse(world.places(), engine); });
  SharedModel model = share_model(world, engine.model);
  engine.dtype = job_dtype(world, settled, model.config);
  JobPlan plan;
  agree(world, [&] {
    plan = plan_or_refuse(world.places(), engine, &model.config);
    if (world.rank() == 0)
      job.emplace(settled, plan, world.places()[0].host, instruction_path(engine.backend), pulse.disk);
  });
  share_folder(world, job, reporters);
  const bool over = gather_values(world, job && job->already_over() ? 1 : 0).front() == 1;
  if (over && job) tell(options, job->resume_text());
  if (over) return job ? *job->already_over() : ExitCode::complete;
  std::optional<LastWord> last_word;
  agree(world, [&] {
    if (job) leave_word(last_word, *job, world, pulse);
  });
  const Preflight preflight = run_preflight(world, settled, plan, job ? job->expected_bytes() : 0);
  engine.backend.threads = preflight.share.threads;
  engine.backend.cpus = preflight.share.cpus;
  reporters.log.write(fmt::format(
      "threads: {}, CPUs: {}", engine.backend.threads,
      engine.backend.cpus.empty() ? "shared" : fmt::format("{}", fmt::join(engine.backend.cpus, ","))));
  agree(world, [&] {
    if (job) report_preflight(preflight, settled, *job);
  });
  return load_and_serve(world, settled, plan, std::move(model), pulse, job, reporters);
}

}  // namespace

ExitCode run_generate(World& world, const GenerateOptions& options, const Reporters& reporters) {
  Health health(world, reporters.neighbours, Deadlines::within(options.deadline),
                [&](const FaultReport& fault) { reporters.faults.tell(fault); });
  reporters.start.reset();
  std::optional<GenerateJob> job;  // rank 0
  // Every end that is agreed on: all are watched until rank 0 has closed its files.
  const auto leave_together = [&] {
    health.pulse().phase = Phase::end;
    world.barrier();
  };
  try {
    const ExitCode code = generate(world, options, health.pulse(), job, reporters);
    leave_together();
    return code;
  } catch (const SilentExit&) {
    leave_together();
    throw;
  } catch (const AgreedError& error) {
    if (job) job->give_up(error.code());
    health.tell_agreed(error, error.rank());
    leave_together();
    throw;
  } catch (const std::exception& exception) {
    const Error error = error_of(exception);
    if (job) job->give_up(error.code());
    health.tell_alone(error);
  }
}

}  // namespace maniple
