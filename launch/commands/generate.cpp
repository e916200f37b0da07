#include <launch/commands/commands.hpp>
#include <launch/generate_job.hpp>
#include <launch/preflight/preflight.hpp>
#include <launch/progress.hpp>
#include <launch/report.hpp>
#include <launch/signals.hpp>
#include <runtime/agreement.hpp>
#include <runtime/control/health.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

namespace maniple {

namespace {

void say(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::optional<size_t> terminal_columns() {
  struct winsize size {};
  if (::isatty(STDERR_FILENO) == 0) return std::nullopt;
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// A single prompt's completion is shown as bare text where somebody reads it and nothing would be lost.
bool is_bare(const GenerateOptions& options) {
  return options.prompt && !options.out && !options.sampling.logprobs;
}

// The other ranks have ended when this fails: no one waits for rank 0.
ExitCode close_agreed(GenerateJob& job, const RunSummary& summary, size_t failed, const std::string& record) {
  try {
    return job.close(summary, failed, InterruptScope::interrupted_code(), record);
  } catch (const Error& error) {
    throw AgreedError(error);
  }
}

// Stores what has finished also when this fails.
RunSummary run_requests(Engine& engine, GenerateJob& job, Results& results) {
  RequestFeed feed(job.lines(), job.feed_setting(engine), results);
  ProgressLine line(job.requests(), terminal_columns(), ProgressLine::Clock::now());
  const InterruptScope interrupts;
  const auto on_progress = [&](const Progress& progress) {
    results.progress(progress);
    say(line.update(progress, job.done_before() + results.done(), ProgressLine::Clock::now()));
  };
  std::optional<AgreedError> failure;
  RunSummary summary;
  try {
    summary = engine.run(feed, results, on_progress, InterruptScope::flag());
  } catch (const AgreedError& error) {
    failure = error;
  }
  say(line.clear());
  try {
    results.drain();
  } catch (const Error& error) {  // the other ranks have ended
    if (!failure) failure = AgreedError(error);
  }
  if (failure) throw AgreedError(*failure);
  if (summary.interrupted) say(fmt::format("maniple: stopped by {}\n", InterruptScope::cause()));
  return summary;
}

ExitCode serve(Engine& engine, const World& world, const GenerateOptions& options, GenerateJob& job) {
  say(banner(options.engine, engine.info(), world, job.seed()) + job.resume_text());
  for (const std::string& warning : engine.generation_config().warnings)
    say(fmt::format("maniple: warning: {}\n", warning));
  RunSummary summary;
  size_t done = 0, failed = 0;
  {
    Results results(job.open_store(), engine.tokenizer(), is_bare(options));
    summary = run_requests(engine, job, results);
    done = results.done();
    failed = results.failed();
    if (options.prompt && failed > 0) say(fmt::format("maniple: error: {}\n", results.last_error()));
  }
  const ExitCode code = close_agreed(job, summary, failed, run_record(engine.info(), summary, world));
  say(summary_text(summary, done, failed, world.places()) + job.outcome_text(code));
  return code;
}

ExitCode load_and_serve(World& world, const EngineOptions& engine_options, const GenerateOptions& options,
                        Pulse& pulse, std::optional<GenerateJob>& job) {
  Engine engine(world, engine_options, pulse);
  if (job) return serve(engine, world, options, *job);
  engine.obey();
  return ExitCode::complete;
}

// Throws what refuses the start.
void report_preflight(const Preflight& preflight, const GenerateJob& job) {
  constexpr size_t most_lines = 16;
  say(preflight_text(preflight.results));
  refuse(preflight.results);
  if (preflight.situation.size() > 1) say(rank_table(preflight.situation, most_lines));
  job.keep("topology.txt", rank_table(preflight.situation));
}

std::string instruction_path(const BackendOptions& backend) {
  if (backend.kind == BackendKind::reference) return "reference";
  return std::string(backend.kind == BackendKind::cuda ? "cuda" : name_of(backend.cpu_path));
}

}  // namespace

ExitCode run_generate(World& world, const GenerateOptions& options) {
  Pulse pulse;
  const Health health(world, pulse);
  EngineOptions engine = options.engine;
  engine.backend.kind = common_backend(world, engine.backend.kind);
  if (engine.backend.cpu_path == CpuPath::automatic) engine.backend.cpu_path = common_cpu_path(world);
  std::optional<GenerateJob> job;  // rank 0
  agree(world, [&] {
    if (world.rank() != 0) return;
    ProcessGrid::of(world.size(), engine.tensor_size);
    job.emplace(options, world.places()[0].host, instruction_path(engine.backend));
  });
  const bool over = gather_values(world, job && job->already_over() ? 1 : 0).front() == 1;
  if (over && job) say(job->resume_text());
  if (over) return job ? *job->already_over() : ExitCode::complete;
  try {
    JobOptions asked = options;
    asked.engine = engine;
    const Preflight preflight = run_preflight(world, asked, job ? job->expected_bytes() : 0);
    engine.backend.threads = preflight.share.threads;
    engine.backend.cpus = preflight.share.cpus;
    agree(world, [&] {
      if (job) report_preflight(preflight, *job);
    });
    return load_and_serve(world, engine, options, pulse, job);
  } catch (const Error& error) {
    if (job) job->give_up(error.code());
    throw;
  }
}

}  // namespace maniple
