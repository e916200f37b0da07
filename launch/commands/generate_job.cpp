#include <kernels/support/counted.hpp>
#include <launch/commands/generate_job.hpp>
#include <launch/commands/input_checks.hpp>
#include <launch/commands/run_identity.hpp>
#include <launch/input/chat_prompt.hpp>
#include <launch/process/exit_code.hpp>
#include <launch/record/record_log.hpp>
#include <launch/run_directory/durable_file.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <random>

namespace maniple {

namespace fs = std::filesystem;

namespace {

SeedReport drawn_seed() {
  std::random_device device;
  return {uint64_t{device()} << 32 | device(), "drawn"};
}

// Somebody may have moved or removed them; the journals still hold all.
bool has_final_files(const fs::path& run, const RunProgress& counts) {
  const auto holds = [&](const char* name) {
    std::error_code ignored;
    return fs::file_size(run / name, ignored) > 0 && !ignored;
  };
  return (counts.done == counts.failed || holds(results_name)) && (counts.failed == 0 || holds(errors_name));
}

}  // namespace

GenerateJob::GenerateJob(const GenerateOptions& options, const JobPlan& plan, const std::string& host,
                         std::atomic<uint32_t>& disk)
    : options_(options), files_(options.engine.model), disk_(disk) {
  if (options_.prompt)
    prompt_ = prompt_line(options_);
  else if (options_.follow)
    followed_.emplace(options_.in.front());
  else
    input_.emplace(open_input(options_));
  if (options_.record && *options_.record != "off")
    for (const fs::path& path : {recording()->file, recording()->log})
      check_output(path, options_.overwrite, input_ ? &*input_ : nullptr);
  if (options_.run_dir) {
    open_run(plan, host);
    return;
  }
  seed_ = seed_of(nullptr);
  started_ = std::time(nullptr);
  // Before the input is read, which may be long.
  check_output(options_.out.value_or("-"), options_.overwrite, input_ ? &*input_ : nullptr);
  if (!followed_) check_requests();
  if (recording() && input_) input_->hash();  // of a long input, before all ranks are ready
  output_.emplace(options_.out.value_or("-"));
}

void GenerateJob::check_requests() {
  const CheckedInput checked = check_input(options_, files_, input_ ? &*input_ : nullptr);
  requests_ = checked.requests;
  unlimited_chats_ = checked.unlimited_chats;
  note_ = checked.note;
}

// merge accepts only shards with one seed. They share nothing but the input, so the seed follows from it.
SeedReport GenerateJob::seed_of(const Manifest* there) {
  if (options_.seed) return {*options_.seed};
  if (there) return {there->number("seed")};
  return options_.shard.count > 1 && input_ ? SeedReport{input_->hash(), "from the input"} : drawn_seed();
}

// An input with the hash of a checked one needs no second check.
void GenerateJob::open_run(const JobPlan& plan, const std::string& host) {
  const fs::path& path = *options_.run_dir;
  const std::optional<Manifest> there = binding_manifest(path);
  seed_ = seed_of(there ? &*there : nullptr);
  const uint64_t hash = input_->hash();
  if (!there) check_requests();
  if (there) requests_ = there->number("requests");
  if (there && there->find("unlimited_chats")) unlimited_chats_ = there->number("unlimited_chats");
  started_ = there ? static_cast<std::time_t>(there->number("started")) : std::time(nullptr);
  const Manifest manifest =
      manifest_of(options_, plan, {hash, requests_, seed_.value, started_, unlimited_chats_});
  if (there) {
    there->check_same(manifest, path);
    const std::optional<RunStatus> status = read_status(path);
    const std::optional<RunProgress> counts = read_progress(path);
    if (status && counts && status->state == RunState::complete && has_final_files(path, *counts) &&
        !(options_.retry_errors && counts->failed > 0)) {
      already_over_ = exit_code_of(options_.fail_on, counts->failed, counts->requests);
      return;
    }
  }
  run_.emplace(RunDirectory::Options{path,
                                     manifest,
                                     options_.shard,
                                     this_process(host, options_.launch.job),
                                     {.silence = options_.takeover_after},
                                     options_.sync_interval,
                                     &disk_});
  if (done_before() == requests()) already_over_ = close({}, 0, "null");  // only the final files were missing
}

std::optional<Recorder::Options> GenerateJob::recording() const {
  if (options_.record == "off" || (!options_.record && !run_)) return std::nullopt;
  const fs::path file = options_.record ? fs::path(*options_.record) : folder() / record_file_name,
                 log = options_.record ? fs::path(*options_.record + ".log") : folder() / record_log_name;
  return Recorder::Options{file, log, options_.record_limit, options_.sync_interval};
}

std::optional<uint64_t> GenerateJob::input_hash() {
  return input_ ? std::optional(input_->hash()) : std::nullopt;
}

fs::path GenerateJob::folder() const { return run_ ? fs::absolute(run_->job_folder()) : fs::path(); }

std::string GenerateJob::start_note() const {
  const bool starts_over = input_ && !run_ && !options_.launch.job.empty();
  return note_ +
         (starts_over
              ? "maniple: note: if Slurm requeues this job, it starts over; with --run-dir it goes on\n"
              : "");
}

std::string GenerateJob::resume_text() const {
  if (already_over_)
    return fmt::format("maniple: {} is complete; results: {}{}\n", options_.run_dir->string(),
                       (*options_.run_dir / results_name).string(),
                       *already_over_ == ExitCode::some_requests_failed
                           ? "; some requests failed (errors.jsonl); --retry-errors runs them again"
                           : "");
  if (!run_ || run_->ledger().done() == 0) return {};
  const std::string dropped =
      run_->dropped_bytes() == 0
          ? ""
          : fmt::format("; {} of the journal torn or damaged, what was told there runs again",
                        counted(run_->dropped_bytes(), "byte"));
  return fmt::format("maniple: {} of {} {} already done{}\n", done_before(), counted(requests(), "request"),
                     done_before() == 1 ? "was" : "were", dropped);
}

// The journal gets the missing requests, the final files get all.
uint64_t GenerateJob::expected_bytes() const {
  constexpr uint64_t token_bytes = 8;            // its text and its id
  constexpr uint64_t tokens_of_an_answer = 512;  // assumed for a chat without a limit
  const uint64_t limit = options_.sampling.max_tokens.value_or(GenerationRequest{}.sampling.max_tokens);
  const uint64_t tokens = ((requests_ - unlimited_chats_) * limit + unlimited_chats_ * tokens_of_an_answer) /
                          std::max<uint64_t>(requests_, 1);
  const uint64_t lines = requests() - done_before() + requests();
  return run_ ? lines * tokens * token_bytes * options_.sampling.n.value_or(1) : 0;
}

void GenerateJob::write_job_file(const char* name, const std::string& text) const {
  const DiskWait wait(&disk_);
  if (run_) replace_file(run_->job_folder() / name, text);
}

ResultStore& GenerateJob::open_store(bool peers_report_deaths) {
  if (run_) return run_store_.emplace(*run_, peers_report_deaths);
  output_->clear();
  return ordered_.emplace(*output_, options_.shard);
}

// Loads the template for the first chat.
RenderChat GenerateJob::renderer() const {
  return [files = files_, name = options_.chat_template, now = started_,
          loaded = std::make_shared<std::optional<ChatTemplate>>()](const auto& chat) {
    if (!*loaded) loaded->emplace(ChatTemplate::load(files, name));
    return chat_prompt(**loaded, chat, now);
  };
}

RequestReader::Options GenerateJob::reader_options(const RankModel& model) const {
  RequestReader::Options reading;
  reading.tokenizer = model.tokenizer();
  reading.render_chat = renderer();
  reading.model_name = files_.name();
  if (!options_.quiet)
    reading.note = [](const std::string& text) { say(fmt::format("maniple: note: {}\n", text)); };
  reading.warn = [](const std::string& text) { say(fmt::format("maniple: warning: {}\n", text)); };
  const GenerationConfig& suggested = model.generation_config();
  reading.defaults = default_request(suggested, options_.sampling);
  reading.default_temperature = !suggested.sampling.temperature && !options_.sampling.temperature;
  reading.default_length = !suggested.sampling.max_tokens && !options_.sampling.max_tokens;
  reading.unlimited_chats = reading.default_length && (followed_ || unlimited_chats_ > 0);
  reading.reasoning = options_.reasoning;
  reading.run_seed = seed_.value;
  reading.shard = options_.shard;
  if (!followed_) reading.requests = requests_;
  reading.unchecked = followed_.has_value();
  reading.ledger = run_ ? &run_->ledger() : nullptr;
  reading.retry_errors = options_.retry_errors;
  return reading;
}

RequestReader::Lines GenerateJob::lines() {
  if (followed_)
    return [this] {
      std::optional<LineReader::Line> line = followed_->next();
      requests_ += line && !line->text.empty();
      return line;
    };
  if (!input_) return [this] { return std::exchange(prompt_, std::nullopt); };
  return [this] { return input_->next(); };
}

ExitCode GenerateJob::close(const RunSummary& summary, size_t failed, const std::string& record) {
  if (!run_) {
    const DiskWait wait(&disk_);
    ordered_->write_held();
    output_->close();
    if (summary.interrupted) return interrupted_code(false);
    return exit_code_of(options_.fail_on, failed, requests());
  }
  if (!summary.experts.empty()) {
    const DiskWait wait(&disk_);
    write_experts(run_->path(), experts_json(summary.experts));
  }
  const ExitCode code = summary.interrupted
                            ? interrupted_code(true)
                            : exit_code_of(options_.fail_on, run_->ledger().failed(), requests());
  const RunState state = summary.interrupted ? RunState::stopped : RunState::complete;
  run_->finish({state, static_cast<int>(code)}, record);
  return code;
}

std::string GenerateJob::outcome_text(ExitCode code) const {
  if (!run_) return out_text(code);
  const Ledger& ledger = run_->ledger();
  const std::string results = (run_->path() / results_name).string();
  return fmt::format("maniple: {}: {} of {} done, {} failed{}; exit {}; {}\n", run_->path().string(),
                     ledger.done(), counted(ledger.requests(), "request"), ledger.failed(),
                     ledger.failed() > 0 ? " (errors.jsonl)" : "", static_cast<int>(process_exit_code(code)),
                     code == ExitCode::stopped ? "the same command again does the rest, into " + results
                                               : "results: " + results);
}

std::string GenerateJob::out_text(ExitCode code) const {
  if (!options_.out || *options_.out == "-") return {};
  const bool whole = code == ExitCode::complete || code == ExitCode::some_requests_failed;
  return fmt::format(
      "maniple: {}: {}\n",
      whole ? "results" : "with --overwrite the same command starts over; what has finished is in",
      *options_.out);
}

ExitCode GenerateJob::process_exit_code(ExitCode code) const {
  return shown_code(code, options_.exit_zero_on_stop);
}

void GenerateJob::give_up(ExitCode code) try {
  if (ordered_) ordered_->write_held();
  if (run_) run_->finish({RunState::fault, static_cast<int>(code)}, "null");
} catch (const std::exception&) {
}

}  // namespace maniple
