#include <launch/commands/commands.hpp>
#include <launch/input/input_format.hpp>
#include <launch/options/job_grammar.hpp>
#include <launch/run_directory/run_lock.hpp>
#include <runtime/tokenizer/reasoning.hpp>

#include <algorithm>
#include <limits>

namespace maniple {
namespace {

Shard parse_shard(const std::string& name, const std::string& given) {
  const size_t slash = std::min(given.find('/'), given.size());
  const auto index = whole_text<uint64_t>(given.substr(0, slash));
  const auto count = whole_text<uint64_t>(std::string_view(given).substr(std::min(slash + 1, given.size())));
  if (!index || !count || index >= count)
    refuse(fmt::format("--{} ({}) must be I/N with I from 0 to N - 1", name, given),
           "in a job array from 0 to N - 1 (sbatch --array=0-15): --shard "
           "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT");
  return {*index, *count};
}

double parse_fail_on(const std::string& name, const std::string& given) {
  if (given == "any") return 0;
  if (given == "none") return 100;
  const auto percent = whole_text<double>(given.substr(0, given.size() - given.ends_with('%')));
  if (!given.ends_with('%') || !(percent >= 0 && percent <= 100))
    refuse(fmt::format("--{} ({}) must be any, none or a percentage", name, given), "--fail-on 5%");
  return *percent;
}

std::string parse_reasoning(const std::string& name, const std::string& given) {
  if (const std::optional<std::string> known = reasoning_name(given)) return *known;
  refuse(fmt::format("--{} ({}) must be one of: {}", name, given, fmt::join(reasoning_names(), ", ")),
         did_you_mean(given, reasoning_names(), "--reasoning auto finds the model's own marks of thoughts"));
}

void add_request_options(Grammar& grammar, GenerateOptions& options) {
  grammar.group("Requests (one of --prompt and --in)");
  grammar.add("prompt", text("TEXT", options.prompt), "one prompt; its completion goes to stdout as text");
  grammar.add("chat", on(options.chat),
              "the prompt is a user's message: the model's chat template makes it a prompt");
  grammar.add("system", text("TEXT", options.system), "with --chat: the system's message before it");
  grammar.add("chat-template", text("NAME", options.chat_template),
              "the one of this name, of a model with several");
  grammar.add("in", texts("FILE...", options.in).repeated(),
              "JSON lines, or FILE.txt with a prompt a line; also packed (gzip, zstd); - for stdin");
  grammar.add("follow", on(options.follow),
              "serve the lines of --in, stdin or a FIFO, as they come, until it ends");
  grammar.add("out", path("FILE", options.out), "JSON lines in the order of the input [default: stdout]");
  grammar.add("overwrite", on(options.overwrite.asked), "--out may be a file that is not empty");
  grammar.add("shard", parsed("I/N", options.shard, parse_shard).by_default("0/1"),
              "serve every N-th request only, from the I-th on, counted from 0");
  grammar.add("reasoning", parsed("auto|off|NAME", options.reasoning, parse_reasoning).by_default("off"),
              "the model's thought apart from its answer; auto: by its tokens; or think, mistral, harmony");
  grammar.add("quiet", on(options.quiet), "nothing on stderr but warnings and errors");
  grammar.add("fail-on", parsed("HOW", options.fail_on, parse_fail_on).by_default("any"),
              "exit with 1 if any request failed; none: never; 5%: if more did");
}

void add_run_options(Grammar& grammar, GenerateOptions& options) {
  grammar.group("Resumable runs");
  grammar.add("run-dir", path("DIR", options.run_dir),
              "keep results here, instead of --out; the same command again resumes");
  grammar.add("sync-interval", duration(options.sync_interval).by_default("5s"),
              "finished requests are safe on the disk after this time");
  grammar.add("retry-errors", on(options.retry_errors), "take up requests that failed in an earlier job");
  grammar.add("exit-zero-on-stop", on(options.exit_zero_on_stop),
              "exit with 0, not 75, at a planned stop, which sacct would show as FAILED");
  const auto two_beats = std::chrono::duration_cast<std::chrono::seconds>(2 * LockTiming{}.beat);
  grammar.add("takeover-after",
              duration(options.takeover_after, two_beats, "give a longer one, or leave the option out",
                       "a job that is alive, and heard of every 2 s, would be taken for gone")
                  .by_default("30s"),
              "silence after which another job in DIR counts as gone; 4s or more");
  add_stop_options(grammar, options);
}

void add_record_options(Grammar& grammar, GenerateOptions& options) {
  grammar.group("Measuring");
  grammar.add("record", path("FILE.h5|off", options.record),
              "keep what is measured of the job here [default: in --run-dir; without it off]");
  grammar.add("record-limit", bytes(options.record_limit).by_default("1G"),
              "most bytes of the record while the job runs; at half of it rows of steps and heartbeats end");
}

// Whether a number is in its range, invalid_reason() says.
template <typename T>
void add_field(Grammar& grammar, const char* name, std::optional<T>& field, const auto& limits,
               const char* help) {
  constexpr float any = std::numeric_limits<float>::max();
  if constexpr (std::is_same_v<T, bool>)
    grammar.add(name, on(field), help);
  else if constexpr (std::is_floating_point_v<T>)
    grammar.add(name, number(field, -any, any), help);
  else if constexpr (std::is_integral_v<T>)
    grammar.add(name,
                number(field, std::is_signed_v<T> ? -no_limit : static_cast<int32_t>(limits.least), no_limit),
                help);
}

void add_sampling_options(Grammar& grammar, GenerateOptions& options) {
  StatedSampling& fields = options.sampling;
  grammar.group("Sampling [default: generation_config.json; a request's own fields win]");
  for_sampling_fields([&](std::string name, const auto& limits, auto help, auto of) {
    std::ranges::replace(name, '_', '-');
    if (help) add_field(grammar, name.c_str(), of(fields), limits, help);
  });
  grammar.add(
      "seed", number(options.seed, uint64_t{0}, std::numeric_limits<uint64_t>::max()),
      "of the run; a request's follows from it and its id [default: drawn; of a shard: from the input]");
  grammar.add("stop", texts("TEXT", fields.stop), "ends a completion; may be given several times");
  grammar.add("logprobs", number(fields.logprobs, 0, no_limit).without_value("0"),
              "report each token's log probability and those of N alternatives");
}

void add_generate_options(Grammar& grammar, GenerateOptions& options, const char* if_no_model) {
  grammar.group("Model");
  add_model_options(grammar, options, if_no_model);
  add_request_options(grammar, options);
  add_run_options(grammar, options);
  add_record_options(grammar, options);
  add_sampling_options(grammar, options);
  add_rank_options(grammar, options);
  add_engine_options(grammar, options.engine);
}

void check_sampling(const StatedSampling& fields) {
  for (const std::string& stop : fields.stop.value_or(std::vector<std::string>{}))
    if (stop.empty()) refuse("--stop was given an empty text", "leave it out");
  GenerationRequest alone;
  apply_stated(fields, alone.sampling);
  if (const auto reason = invalid_reason(alone.sampling))
    refuse(*reason, "give another number, or leave the option out");
}

void check_places(const GenerateOptions& options) {
  if (options.prompt && !options.in.empty())
    refuse("both --prompt and --in were given", "leave one of them out");
  if (options.chat && !options.prompt && (options.follow || std::ranges::none_of(options.in, is_called_text)))
    refuse("--chat needs --prompt, or text files with a user's message a line",
           "--prompt TEXT --chat; in JSON lines a chat is {\"messages\": [...]}");
  if (options.system && !options.chat) refuse("--system needs --chat", "--prompt TEXT --chat --system TEXT");
  if (options.retry_errors && !options.run_dir)
    refuse("--retry-errors needs --run-dir", "give the --run-dir of the run");
  if (options.follow && options.in.size() != 1)
    refuse("--follow needs one --in", "--in - --follow, or the path of a FIFO");
  if (options.follow && (options.run_dir || options.shard.count > 1))
    refuse(fmt::format("--follow does not go with --{}", options.run_dir ? "run-dir" : "shard"),
           "leave one of them out",
           "the lines are not known before they come, and no later job can read them");
  if (options.exit_zero_on_stop && !options.run_dir)
    refuse("--exit-zero-on-stop needs --run-dir",
           "keep the results with --run-dir: without it a stop loses them");
  if (options.run_dir && options.record && *options.record != "off")
    refuse("--record FILE does not go with --run-dir", "leave --record out, or give --record off",
           "the run directory keeps a record of each job");
  if (options.record && options.out &&
      std::filesystem::path(*options.record).lexically_normal() ==
          std::filesystem::path(*options.out).lexically_normal())
    refuse("--record and --out are the same file", "give the record a name of its own");
  if (options.run_dir && (options.prompt || options.out))
    refuse(fmt::format("--run-dir does not go with --{}", options.prompt ? "prompt" : "out"),
           "give the requests with --in; the results will be in the run directory's results.jsonl");
}

}  // namespace

Parsed<GenerateOptions> parse_generate(Grammar& grammar, Words args, const Launch& launch) {
  GenerateOptions options;
  add_generate_options(grammar, options, "--model DIR, the directory that holds config.json");
  if (const auto help = grammar.parse(args)) return Notice{*help};
  settle(options, grammar, launch);
  if (!options.prompt && options.in.empty())
    refuse("there is nothing to do: no prompt", "--prompt TEXT, or --in FILE with one request a line");
  check_places(options);
  check_sampling(options.sampling);
  options.engine.seed = options.seed.value_or(0);
  options.overwrite.requeued = launch.requeued;
  options.overwrite.quiet = options.quiet;
  return options;
}

Parsed<DoctorOptions> parse_doctor(Grammar& grammar, Words args, const Launch& launch) {
  DoctorOptions options;
  grammar.group("Doctor");
  grammar.add("quick", on(options.quick), "no measurements");
  add_generate_options(grammar, options, /*if_no_model=*/nullptr);
  if (const auto help = grammar.parse(args)) return Notice{*help};
  settle(options, grammar, launch);
  check_places(options);
  check_sampling(options.sampling);
  options.overwrite.requeued = launch.requeued;
  return options;
}

}  // namespace maniple
