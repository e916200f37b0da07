#include <launch/commands/commands.hpp>
#include <launch/preflight.hpp>
#include <launch/progress.hpp>
#include <launch/report.hpp>
#include <launch/results.hpp>
#include <launch/signals.hpp>
#include <runtime/agreement.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/control/health.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <random>

namespace maniple {

namespace {

void say(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

// Rank 0's files, opened and checked before anything is loaded.
struct Files {
  explicit Files(const GenerateOptions& options) {
    check_model_directory(options.engine.model);
    if (options.in) {
      input.emplace(*options.in);
      checked = validate_requests(*input);
    } else {
      prompt = request_of_prompt(*options.prompt);
      checked = {1, 1};
    }
    if (checked.first_text_line && !std::filesystem::exists(options.engine.model / "tokenizer.json"))
      refuse_text(options);
    output.emplace(options.out.value_or("-"));
    if (input && output->is_same_file(input->descriptor()))
      fail(ExitCode::usage, "--in and the output are the same file, {}; write the results to another one",
           *options.in);
  }

  void refuse_text(const GenerateOptions& options) const {
    const std::string where =
        input ? fmt::format("{} line {} has text", input->name(), *checked.first_text_line)
              : "--prompt is text";
    throw Error(
        ExitCode::input,
        fmt::format("{}, but {} has no tokenizer.json", where, options.engine.model.string()),
        "such a model serves token ids only",
        R"(copy the model's tokenizer.json there, or write {"id": ..., "tokens": [...]} and stop_token_ids)");
  }

  RequestFeed::Lines lines() {
    if (!input) return [this] { return std::exchange(prompt, std::nullopt); };
    return [this] {
      const std::optional<LineReader::Line> line = input->next();
      return line ? std::optional(parse_request(*line)) : std::nullopt;
    };
  }

  std::optional<LineReader> input;
  std::optional<RequestLine> prompt;  // where there is no input file
  InputSummary checked;
  std::optional<OutputFile> output;
};

SeedReport seed_of(const GenerateOptions& options) {
  if (options.seed) return {*options.seed, false};
  std::random_device device;
  return {uint64_t{device()} << 32 | device(), true};
}

std::optional<size_t> terminal_columns() {
  struct winsize size {};
  if (::isatty(STDERR_FILENO) == 0) return std::nullopt;
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// A single prompt's completion is shown as bare text where somebody reads it and nothing would be lost.
ResultWriter::Format format_of(const GenerateOptions& options, const Engine& engine) {
  const bool bare = options.prompt && !options.out && !options.sampling.logprobs;
  return {.json = !bare, .with_text = engine.tokenizer() != nullptr};
}

ExitCode exit_code(const RunSummary& summary, const ResultWriter& results) {
  if (summary.interrupted) return InterruptScope::interrupted_code();
  return results.failed() > 0 ? ExitCode::some_requests_failed : ExitCode::complete;
}

// The error that ends the run is the one to report.
void save_what_finished(ResultWriter& results) {
  try {
    results.write_held();
  } catch (const Error&) {
  }
}

// The other ranks have ended: no one waits for rank 0.
void close_results(ResultWriter& results, OutputFile& file) {
  try {
    results.write_held();
    file.close();
  } catch (const Error& error) {
    throw AgreedError(error);
  }
}

ExitCode serve(Engine& engine, const World& world, const GenerateOptions& options, Files& files) {
  const SeedReport seed = seed_of(options);
  say(banner(options.engine, engine.info(), world, seed));
  for (const std::string& warning : engine.generation_config().warnings)
    say(fmt::format("maniple: warning: {}\n", warning));
  files.output->clear();
  ResultWriter results(*files.output, format_of(options, engine));
  RequestFeed feed(files.lines(), engine.tokenizer(),
                   default_request(engine.generation_config(), options.sampling), seed.value, results);
  ProgressLine line(files.checked.requests, terminal_columns(), ProgressLine::Clock::now());
  const InterruptScope interrupts;
  const auto on_progress = [&](const Progress& progress) {
    say(line.update(progress, results.done(), ProgressLine::Clock::now()));
  };
  RunSummary summary;
  try {
    summary = engine.run(feed, results, on_progress, InterruptScope::flag());
  } catch (const AgreedError&) {
    say(line.clear());
    save_what_finished(results);
    throw;
  }
  say(line.clear());
  if (summary.interrupted) say(fmt::format("maniple: stopped by {}\n", InterruptScope::cause()));
  close_results(results, *files.output);
  if (options.prompt && results.failed() > 0) say(fmt::format("maniple: error: {}\n", results.last_error()));
  say(summary_text(summary, results.done(), results.failed(), world.places()));
  return exit_code(summary, results);
}

}  // namespace

ExitCode run_generate(World& world, const GenerateOptions& options) {
  Pulse pulse;
  const Health health(world, pulse);
  std::optional<Files> files;
  agree(world, [&] {
    if (world.rank() != 0) return;
    ProcessGrid::of(world.size(), options.engine.tensor_size);
    files.emplace(options);
  });
  EngineOptions engine_options = options.engine;
  const Preflight preflight = run_preflight(world, options.threads);
  engine_options.backend.threads = preflight.share.threads;
  engine_options.backend.cpus = preflight.share.cpus;
  if (world.rank() == 0 && preflight.warning) say(*preflight.warning);
  Engine engine(world, engine_options, pulse);
  if (world.rank() == 0) return serve(engine, world, options, *files);
  engine.obey();
  return ExitCode::complete;
}

}  // namespace maniple
