#include <kernels/support/check.hpp>
#include <launch/nearest_name.hpp>
#include <launch/options.hpp>
#include <launch/run_directory/run_lock.hpp>

#include <boost/program_options.hpp>

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

namespace maniple {

namespace po = boost::program_options;

namespace {

const std::vector<std::string> commands = {"generate", "doctor", "tokenize", "status", "merge"};

constexpr std::string_view overview =
    R"(maniple: runs a large language model on all ranks of an MPI job

  maniple generate --model DIR --prompt TEXT                                        one rank
  mpirun -n 4 maniple generate --model DIR --tp 2 --in FILE --out FILE              4 ranks: 2 replicas of 2
  srun --mpi=pmix maniple generate --model DIR --tp 2 --in FILE --out FILE          on a Slurm cluster
  maniple tokenize --model DIR --in FILE                                            token ids, no weights

Commands (each has its own --help):
  generate    continue prompts with a model from a Hugging Face directory
  doctor      checks and measures what a job would run on
  tokenize    texts to token ids, or back with --decode
  status      how a run directory stands
  merge       the results of several shards as one file

  --help      this text
  --version   the version
)";

constexpr std::string_view generate_usage =
    R"(maniple generate: continues prompts

  mpirun -n 4 maniple generate --model DIR --tp 2 --in prompts.jsonl --out results.jsonl
  maniple generate --model DIR --prompt "ROMEO:" --max-tokens 120

  srun --mpi=pmix maniple generate --model DIR --tp 4 --in prompts.jsonl --run-dir runs/r1

Input lines are {"id": ..., "prompt": "..."} or {"id": ..., "tokens": [...]}, with sampling fields of their own if need be, or
OpenAI's batch lines {"custom_id": ..., "method": "POST", "url": "/v1/completions", "body": {...}}.
The last command resumes: killed at any time, it loses at most the last --sync-interval of finished requests, and the same
command again finishes the rest.
)";

constexpr std::string_view doctor_usage =
    R"(maniple doctor: checks the launch and the machines, and measures them; in a job step of its own

  srun --mpi=pmix maniple doctor --model DIR --tp 4 --run-dir runs/r1
  mpirun -n 4 maniple doctor --tp 2 --quick

Give it what `generate` will be given. Exit code 69 where `generate` would refuse to start.
)";

constexpr std::string_view status_usage =
    R"(maniple status DIR: how the run in this directory stands

  maniple status runs/r1; maniple status runs/r1 --rc; [ $? -eq 75 ] && scontrol requeue $SLURM_JOB_ID
)";

constexpr std::string_view merge_usage =
    R"(maniple merge OUT DIR...: the results of all shards of a run, in the order of its input

  maniple merge results.jsonl runs/r1.*        errors, if there are any, go to results.jsonl.errors
)";

constexpr std::string_view tokenize_usage =
    R"(maniple tokenize: texts to token ids

  maniple tokenize --model DIR --in texts.jsonl
  maniple tokenize --model DIR --in tokens.jsonl --decode
  maniple tokenize --model DIR --in requests.jsonl --chat

Input lines are {"id": ..., "text": "..."} or "...", with --decode {"id": ..., "tokens": [...]} or [...], with --chat
{"id": ..., "messages": [...], "tools": [...], ...} or lines of an OpenAI batch: the model's chat template makes them prompts.
)";

[[noreturn]] void refuse(const std::string& what, const std::string& remedy, const std::string& why = {}) {
  throw Error(ExitCode::usage, what, why, remedy);
}

std::string did_you_mean(const std::string& name, std::span<const std::string> candidates,
                         const std::string& otherwise) {
  const std::optional<std::string> nearest = nearest_name(name, candidates);
  return nearest ? fmt::format("did you mean {}?", *nearest) : otherwise;
}

// Text, checked later, so that every message about a value is ours.
auto* text(const char* shown) { return po::value<std::string>()->value_name(shown); }
auto* text(const char* shown, const char* fallback) { return text(shown)->default_value(fallback); }

class Grammar {
 public:
  Grammar(std::string command, std::string_view usage) : command_(std::move(command)), usage_(usage) {
    general_.add_options()("config", text("FILE"),
                           "more options, one `name = value` a line; the command line wins")(
        "help", po::bool_switch(), "this text");
  }

  po::options_description& group(const char* caption) {
    return groups_.emplace_back(caption, line_length, description_length);
  }

  // Words that belong to no option are taken, as values of "words".
  void take_words() { words_.add("words", -1); }

  po::variables_map parse(std::span<const std::string> args) {
    for (const po::options_description& group : groups_) in_file_.add(group);
    all_.add(in_file_).add(general_);
    if (words_.max_total_count() > 0) all_.add_options()("words", po::value<std::vector<std::string>>());
    try {
      po::variables_map values;
      po::store(from_arguments(args), values);
      if (values.count("config") != 0) po::store(from_file(values["config"].as<std::string>()), values);
      return values;
    } catch (const po::error& error) {
      refuse(error.what(), help_remedy());
    }
  }

  std::string help() const {
    std::ostringstream text;
    text << usage_;
    for (const po::options_description& group : groups_) text << '\n' << group;
    text << '\n' << general_;
    return text.str();
  }

 private:
  static constexpr unsigned line_length = 110;
  static constexpr unsigned description_length = 72;

  std::string help_remedy() const { return fmt::format("maniple {} --help lists the options", command_); }

  std::vector<std::string> names(const po::options_description& options, std::string_view prefix) const {
    std::vector<std::string> names;
    for (const auto& option : options.options())
      names.push_back(fmt::format("{}{}", prefix, option->long_name()));
    return names;
  }

  po::parsed_options from_arguments(std::span<const std::string> args) const {
    using namespace po::command_line_style;
    po::command_line_parser parser(std::vector<std::string>(args.begin(), args.end()));
    parser.options(all_).style(allow_long | long_allow_adjacent | long_allow_next).allow_unregistered();
    if (words_.max_total_count() > 0) parser.positional(words_);
    po::parsed_options parsed = parser.run();
    for (const po::option& option : parsed.options) check(option);
    return parsed;
  }

  void check(const po::option& option) const {
    const std::string name = "--" + option.string_key;
    if (option.position_key >= 0 && option.string_key.empty())
      refuse(fmt::format("\"{}\" belongs to no option", option.value.at(0)),
             fmt::format("put text with spaces into quotes; {}", help_remedy()));
    if (option.unregistered)
      refuse(fmt::format("unknown option {}", name), did_you_mean(name, names(all_, "--"), help_remedy()));
    const bool took_next = option.original_tokens.size() == 2 && option.original_tokens[1].starts_with("--");
    if (took_next && all_.find_nothrow(option.original_tokens[1].substr(2), false))
      refuse(fmt::format("{} needs a value, but {} follows", name, option.original_tokens[1]),
             fmt::format("{}=VALUE takes any text as value", name));
  }

  po::parsed_options from_file(const std::string& path) const {
    std::ifstream file(path);
    if (!file) fail(ExitCode::input, "cannot open the file {} given by --config", path);
    po::parsed_options parsed(&in_file_);
    std::string line;
    for (size_t number = 1; std::getline(file, line); ++number) {
      const std::string content = trimmed(line);
      if (!content.empty() && content[0] != '#')
        parsed.options.push_back(from_line(content, fmt::format("{} line {}", path, number)));
    }
    return parsed;
  }

  po::option from_line(const std::string& line, const std::string& where) const {
    const size_t equals = line.find('=');
    if (equals == std::string::npos)
      refuse(fmt::format("{}: \"{}\" is not of the form name = value", where, line),
             "a switch is turned on by: name = true");
    const std::string name = trimmed(line.substr(0, equals));
    if (!in_file_.find_nothrow(name, false))
      refuse(fmt::format("{}: unknown option \"{}\"", where, name),
             did_you_mean(name, names(in_file_, ""), help_remedy()));
    return {name, {trimmed(line.substr(equals + 1))}};
  }

  static std::string trimmed(const std::string& text) {
    const size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r") + 1 - first);
  }

  std::string command_;
  std::string_view usage_;
  std::vector<po::options_description> groups_;
  po::options_description in_file_;
  po::options_description general_{"General", line_length, description_length};
  po::options_description all_;
  po::positional_options_description words_;
};

// The values that were given, each checked when it is read.
class Values {
 public:
  explicit Values(po::variables_map values) : values_(std::move(values)) {}

  bool given(const char* name) const { return values_.count(name) != 0; }
  bool on(const char* name) const { return values_[name].as<bool>(); }
  std::optional<std::string> text(const char* name) const {
    return given(name) ? std::optional(values_[name].as<std::string>()) : std::nullopt;
  }
  std::optional<std::vector<std::string>> texts(const char* name) const {
    return given(name) ? std::optional(values_[name].as<std::vector<std::string>>()) : std::nullopt;
  }

  template <typename T>
  std::optional<T> number(const char* name, T smallest, T largest) const {
    const std::optional<std::string> digits = text(name);
    if (!digits) return std::nullopt;
    T value{};
    const char* end = digits->data() + digits->size();
    const auto [stopped, error] = std::from_chars(digits->data(), end, value);
    if (error != std::errc{} || stopped != end || !(value >= smallest && value <= largest))
      refuse(fmt::format("--{} ({}) must be a {}number from {} to {}", name, *digits,
                         std::is_integral_v<T> ? "whole " : "", smallest, largest),
             "give another number, or leave the option out");
    return value;
  }

  template <typename T>
  T choice(const char* name, std::initializer_list<std::pair<const char*, T>> choices) const {
    const std::string given = *text(name);
    std::vector<std::string> known;
    for (const auto& [word, value] : choices) {
      if (given == word) return value;
      known.emplace_back(word);
    }
    refuse(fmt::format("--{} ({}) must be one of: {}", name, given, fmt::join(known, ", ")),
           did_you_mean(given, known, fmt::format("--{} {}", name, known.front())));
  }

 private:
  po::variables_map values_;
};

// The group stays open for more.
po::options_description_easy_init add_rank_options(Grammar& grammar) {
  return grammar.group("Ranks and processors")
      .add_options()                                                                                        //
      ("tp", text("N", "1"), "ranks that share one copy of the model; replicas = ranks / N")                //
      ("allow-cross-node-tp", po::bool_switch(), "ranks that share a copy may be on several nodes")         //
      ("backend", text("NAME", "auto"), "auto, cpu, reference or cuda")                                     //
      ("threads", text("N"), "of each rank [default: its CPUs / ranks that share them]")                    //
      ("cpu-path", text("NAME", "auto"), "auto, amx, avx512_bf16, avx512, avx2 or portable")                //
      ("deadline", text("TIME", "60s"), "all ranks are gone so long after any one failed")                  //
      ("start-deadline", text("TIME", "300s"), "the ranks have found each other by then, or the job ends")  //
      ("transport", text("NAME", "auto"),
       "of tensors on GPUs: nccl, host (through MPI), or auto: nccl where no two ranks share a GPU");
}

void add_generate_options(Grammar& grammar) {
  grammar.group("Model").add_options()                                                                 //
      ("model", text("DIR"), "Hugging Face directory: config.json, *.safetensors, tokenizer.json")     //
      ("load", text("HOW", "weights"), "weights; or random: seeded ones of the shape in config.json")  //
      ("dtype", text("TYPE", "bf16"), "bf16, fp16 (on GPUs) or fp32: weights, activations, KV cache")  //
      ("max-model-len", text("N"), "most tokens of prompt and completion [default: the model's]");
  grammar.group("Requests (one of --prompt and --in)")
      .add_options()                                                                 //
      ("prompt", text("TEXT"), "one prompt; its completion goes to stdout as text")  //
      ("in", po::value<std::vector<std::string>>()->value_name("FILE...")->multitoken()->composing(),
       "JSON lines, also gzipped; - for stdin")                                                         //
      ("out", text("FILE"), "JSON lines in the order of the input [default: stdout]")                   //
      ("shard", text("I/N", "0/1"), "serve every N-th request only, from the I-th on, counted from 0")  //
      ("fail-on", text("HOW", "any"), "exit with 1 if any request failed; none: never; 5%: if more did");
  grammar.group("Resumable runs")
      .add_options()                                                                                   //
      ("run-dir", text("DIR"), "keep results here, instead of --out; the same command again resumes")  //
      ("sync-interval", text("TIME", "5s"), "finished requests are safe on the disk after this time")  //
      ("retry-errors", po::bool_switch(), "take up requests that failed in an earlier job")            //
      ("takeover-after", text("TIME", "30s"),
       "silence after which another job in DIR counts as gone; 4s or more");
  grammar.group("Stopping before the job's time is over")
      .add_options()                                                                                     //
      ("stop-before", text("TIME"), "stop so long before it [default: 180s, at most half of the time]")  //
      ("walltime", text("TIME"), "the job's time from now on, where Slurm does not tell");
  grammar.group("Sampling [default: generation_config.json; a request's own fields win]")
      .add_options()                                                                                 //
      ("max-tokens", text("N"), "most tokens of a completion [default: 64]")                         //
      ("temperature", text("X"), "0 for greedy, up to 2")                                            //
      ("top-k", text("N"), "sample from the N likeliest tokens; 0 for all")                          //
      ("top-p", text("X"), "sample from the likeliest tokens of this total probability; 1 for all")  //
      ("min-p", text("X"), "drop tokens below this fraction of the likeliest one's probability")     //
      ("seed", text("N"),
       "of the run; a request's follows from it and its id [default: drawn; of a shard: from the input]")  //
      ("ignore-eos", po::bool_switch(), "the model's stop tokens do not end a completion")                 //
      ("stop", po::value<std::vector<std::string>>()->value_name("TEXT"),
       "ends a completion; may be given several times")  //
      ("logprobs", text("N")->implicit_value("0"),
       "report each token's log probability and those of N alternatives");
  add_rank_options(grammar)  //
      ("repro", text("LEVEL", "grid"),
       "off; batch: same text whoever shares the batch; grid: on any grid too")  //
      ("eager", po::bool_switch(), "no CUDA graphs of decode steps");
  grammar.group("Batches and memory")
      .add_options()                                                                                 //
      ("max-num-seqs", text("N", "256"), "most requests of a replica at once")                       //
      ("max-num-batched-tokens", text("N", "2048"), "most tokens of a step")                         //
      ("schedule", text("HOW", "mixed"), "mixed; prefill-first: prompts alone, before decodes")      //
      ("block-size", text("N", "256"), "tokens in a block of the KV cache: 16, 32, 64, 128 or 256")  //
      ("kv-memory", text("BYTES"),
       "KV cache of a rank, such as 4G (2^30) or 4GB (10^9) [default: what is useful and free]")  //
      ("gpu-memory-utilization", text("X", "0.9"), "part of a GPU's memory that may be used")     //
      ("no-prefix-cache", po::bool_switch(), "compute every prompt from its start");
}

uint32_t block_size(const Values& values) {
  const uint32_t size = *values.number<uint32_t>("block-size", 1, std::numeric_limits<uint32_t>::max());
  if (size < 16 || size > 256 || !std::has_single_bit(size))
    refuse(fmt::format("--block-size ({}) must be 16, 32, 64, 128 or 256", size),
           "--block-size 256 suits most runs");
  return size;
}

DType dtype(const Values& values) {
  return values.choice<DType>("dtype", {{"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp32", DType::fp32}});
}

std::chrono::milliseconds deadline_of(const Values& values, const char* name) {
  const std::string text = *values.text(name);
  const std::chrono::milliseconds deadline = parse_duration(text);
  if (deadline < std::chrono::seconds(3))
    refuse(fmt::format("--{} ({}) is below 3 s", name, text),
           "give a longer one; a busy machine needs time too");
  return deadline;
}

std::chrono::milliseconds takeover_of(const std::string& text) {
  const std::chrono::milliseconds silence = parse_duration(text);
  const std::chrono::milliseconds least = 2 * LockTiming{}.beat;
  if (silence < least)
    throw Error(ExitCode::usage,
                fmt::format("--takeover-after ({}) is below {} s", text, least / std::chrono::seconds(1)),
                "a job that is alive, and heard of every 2 s, would be taken for gone",
                "give a longer one, or leave the option out");
  return silence;
}

void read_rank_options(const Values& values, JobOptions& options) {
  EngineOptions& engine = options.engine;
  engine.tensor_size = *values.number<int>("tp", 1, 1 << 20);
  engine.backend.kind = values.choice<BackendKind>("backend", {{"auto", BackendKind::automatic},
                                                               {"cpu", BackendKind::cpu},
                                                               {"reference", BackendKind::reference},
                                                               {"cuda", BackendKind::cuda}});
  options.any_backend = engine.backend.kind == BackendKind::automatic;
  engine.backend.cpu_path = values.choice<CpuPath>("cpu-path", {{"auto", CpuPath::automatic},
                                                                {"amx", CpuPath::amx},
                                                                {"avx512_bf16", CpuPath::avx512_bf16},
                                                                {"avx512", CpuPath::avx512},
                                                                {"avx2", CpuPath::avx2},
                                                                {"portable", CpuPath::portable}});
  options.start_deadline = deadline_of(values, "start-deadline");
  options.deadline = deadline_of(values, "deadline");
  options.allow_cross_node_tp = values.on("allow-cross-node-tp");
  options.threads = values.number<int>("threads", 1, 4096);
  options.transport = values.choice<GpuTransport>(
      "transport",
      {{"auto", GpuTransport::automatic}, {"nccl", GpuTransport::nccl}, {"host", GpuTransport::host}});
  engine.share_gpus = options.transport == GpuTransport::host;
}

void read_engine_options(const Values& values, EngineOptions& engine) {
  constexpr uint32_t most = std::numeric_limits<int32_t>::max();
  if (!values.given("model"))
    refuse("no model was given", "--model DIR, the directory that holds config.json");
  engine.model = *values.text("model");
  engine.dtype = dtype(values);
  engine.random_weights = values.choice<bool>("load", {{"weights", false}, {"random", true}});
  engine.repro =
      values.choice<Repro>("repro", {{"grid", Repro::grid}, {"batch", Repro::batch}, {"off", Repro::off}});
  engine.block_size = block_size(values);
  engine.max_num_seqs = *values.number<uint32_t>("max-num-seqs", 1, most);
  engine.max_num_batched_tokens = *values.number<uint32_t>("max-num-batched-tokens", 1, most);
  engine.max_model_len = values.number<uint32_t>("max-model-len", 1, most);
  engine.schedule =
      values.choice<Policy>("schedule", {{"mixed", Policy::mixed}, {"prefill-first", Policy::prefill_first}});
  engine.prefix_cache = !values.on("no-prefix-cache");
  engine.gpu_memory_utilization = *values.number<double>("gpu-memory-utilization", 0.01, 1);
  engine.eager = values.on("eager");
  if (values.given("kv-memory")) engine.kv_memory = parse_bytes(*values.text("kv-memory"));
}

Shard parse_shard(const std::string& given) {
  Shard shard;
  const char* end = given.data() + given.size();
  const auto [slash, bad_index] = std::from_chars(given.data(), end, shard.index);
  const bool divided = bad_index == std::errc{} && slash != end && *slash == '/';
  if (!divided || std::from_chars(slash + 1, end, shard.count).ptr != end || shard.index >= shard.count)
    refuse(fmt::format("--shard ({}) must be I/N with I from 0 to N - 1", given),
           "in a job array: --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT");
  return shard;
}

FailOn parse_fail_on(const std::string& given) {
  if (given == "any") return {0};
  if (given == "none") return {100};
  double percent = 0;
  const char* end = given.data() + given.size();
  const auto [stopped, error] = std::from_chars(given.data(), end, percent);
  if (error != std::errc{} || std::string_view(stopped, end) != "%" || !(percent >= 0 && percent <= 100))
    refuse(fmt::format("--fail-on ({}) must be any, none or a percentage", given), "--fail-on 5%");
  return {percent};
}

SamplingFields sampling_fields(const Values& values) {
  constexpr float any = std::numeric_limits<float>::max();
  constexpr int32_t most = std::numeric_limits<int32_t>::max();
  SamplingFields fields;
  fields.temperature = values.number<float>("temperature", -any, any);
  fields.top_k = values.number<int32_t>("top-k", -most, most);
  fields.top_p = values.number<float>("top-p", -any, any);
  fields.min_p = values.number<float>("min-p", -any, any);
  fields.max_tokens = values.number<uint32_t>("max-tokens", 1, most);
  fields.logprobs = values.number<int32_t>("logprobs", 0, most);
  if (values.on("ignore-eos")) fields.ignore_eos = true;
  fields.stop = values.texts("stop");
  for (const std::string& stop : fields.stop.value_or(std::vector<std::string>{}))
    if (stop.empty()) refuse("--stop was given an empty text", "leave it out");
  GenerationRequest alone;
  fields.apply_to(alone);
  if (const auto reason = invalid_reason(alone.sampling))
    refuse(*reason, "give another number, or leave the option out");
  return fields;
}

void run_options(const Values& values, GenerateOptions& options) {
  options.shard = parse_shard(*values.text("shard"));
  options.fail_on = parse_fail_on(*values.text("fail-on"));
  options.retry_errors = values.on("retry-errors");
  options.sync_interval = parse_duration(*values.text("sync-interval"));
  options.takeover_after = takeover_of(*values.text("takeover-after"));
  if (!values.given("run-dir")) {
    if (options.retry_errors) refuse("--retry-errors needs --run-dir", "give the --run-dir of the run");
    return;
  }
  options.run_dir = *values.text("run-dir");
  if (options.prompt || options.out)
    refuse(fmt::format("--run-dir does not go with --{}", options.prompt ? "prompt" : "out"),
           "give the requests with --in; the results will be in the run directory's results.jsonl");
}

CommandLine parse_generate(std::span<const std::string> args) {
  Grammar grammar("generate", generate_usage);
  add_generate_options(grammar);
  const Values values(grammar.parse(args));
  if (values.on("help")) return Notice{grammar.help()};
  GenerateOptions options;
  read_engine_options(values, options.engine);
  read_rank_options(values, options);
  options.prompt = values.text("prompt");
  options.in = values.texts("in").value_or(std::vector<std::string>{});
  options.out = values.text("out");
  if (options.prompt && !options.in.empty())
    refuse("both --prompt and --in were given", "leave one of them out");
  if (!options.prompt && options.in.empty())
    refuse("there is nothing to do: no prompt", "--prompt TEXT, or --in FILE with one request a line");
  run_options(values, options);
  if (values.given("stop-before"))
    options.time_limit.stop_before = parse_duration(*values.text("stop-before"));
  if (values.given("walltime")) options.time_limit.walltime = parse_duration(*values.text("walltime"));
  options.sampling = sampling_fields(values);
  options.seed = values.number<uint64_t>("seed", 0, std::numeric_limits<uint64_t>::max());
  options.engine.seed = options.seed.value_or(0);
  return options;
}

CommandLine parse_doctor(std::span<const std::string> args) {
  Grammar grammar("doctor", doctor_usage);
  grammar.group("Doctor").add_options()                                     //
      ("model", text("DIR"), "does it fit, and how fast is it read?")       //
      ("run-dir", text("DIR"), "can results be kept there, and how fast?")  //
      ("dtype", text("TYPE", "bf16"), "as for generate")                    //
      ("kv-memory", text("BYTES"), "as for generate")                       //
      ("quick", po::bool_switch(), "no measurements");
  add_rank_options(grammar);
  const Values values(grammar.parse(args));
  if (values.on("help")) return Notice{grammar.help()};
  DoctorOptions options;
  read_rank_options(values, options);
  options.engine.model = values.text("model").value_or("");
  options.engine.dtype = dtype(values);
  if (values.given("kv-memory")) options.engine.kv_memory = parse_bytes(*values.text("kv-memory"));
  if (values.given("run-dir")) options.run_dir = *values.text("run-dir");
  options.quick = values.on("quick");
  return options;
}

CommandLine parse_tokenize(std::span<const std::string> args) {
  Grammar grammar("tokenize", tokenize_usage);
  grammar.group("Tokenize")
      .add_options()                                                               //
      ("model", text("DIR"), "directory that holds tokenizer.json")                //
      ("in", text("FILE", "-"), "JSON lines; - for stdin")                         //
      ("out", text("FILE", "-"), "JSON lines; - for stdout")                       //
      ("decode", po::bool_switch(), "the other way: token ids to text")            //
      ("chat", po::bool_switch(), "chat requests to their prompts and token ids")  //
      ("special", po::bool_switch(),
       "add special tokens as the tokenizer's template says (generate does); --decode: show them");
  const Values values(grammar.parse(args));
  if (values.on("help")) return Notice{grammar.help()};
  if (!values.given("model"))
    refuse("no model was given", "--model DIR, the directory that holds tokenizer.json");
  if (values.on("chat") && (values.on("decode") || values.on("special")))
    refuse("--chat goes neither with --decode nor with --special",
           "leave these out: the chat template says which special tokens there are");
  return TokenizeOptions{*values.text("model"), *values.text("in"), *values.text("out"),
                         values.on("decode"),   values.on("chat"),  values.on("special")};
}

CommandLine parse_status(std::span<const std::string> args) {
  Grammar grammar("status", status_usage);
  grammar.take_words();
  grammar.group("Status").add_options()                                      //
      ("rc", po::bool_switch(), "exit with the code of the run's last job")  //
      ("watch", po::bool_switch(), "a line every two seconds until the job ends");
  const Values values(grammar.parse(args));
  if (values.on("help")) return Notice{grammar.help()};
  const auto words = values.texts("words").value_or(std::vector<std::string>{});
  if (words.size() != 1) refuse("status takes one run directory", "maniple status DIR");
  return StatusOptions{words[0], values.on("rc"), values.on("watch")};
}

CommandLine parse_merge(std::span<const std::string> args) {
  Grammar grammar("merge", merge_usage);
  grammar.take_words();
  const Values values(grammar.parse(args));
  if (values.on("help")) return Notice{grammar.help()};
  const auto words = values.texts("words").value_or(std::vector<std::string>{});
  if (words.size() < 2) refuse("merge takes a file and run directories", "maniple merge OUT DIR...");
  return MergeOptions{words[0], {words.begin() + 1, words.end()}};
}

}  // namespace

size_t parse_bytes(const std::string& text) {
  constexpr std::string_view units = "KMGT";
  size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  const std::string unit(stopped, end);
  const size_t power = unit.empty() ? 0 : units.find(unit[0]) + 1;  // npos + 1: 0
  const bool known =
      unit.empty() || (power > 0 && (unit.size() == 1 || unit.substr(1) == "iB" || unit.substr(1) == "B"));
  const size_t base = unit.size() == 2 ? 1000 : 1024;
  bool fits = error == std::errc{} && value > 0 && known;
  for (size_t i = 0; fits && i < power; ++i) fits = !__builtin_mul_overflow(value, base, &value);
  if (!fits)
    refuse(fmt::format("\"{}\" is not a number of bytes", text),
           "write it like 512M, 4G or 4GiB (powers of 1024), or 4GB (powers of 1000)");
  return value;
}

std::chrono::milliseconds parse_duration(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(stopped, end);
  const double seconds = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc{} || seconds == 0 || !(value >= 0 && value <= 1e6))
    refuse(fmt::format("\"{}\" is not a time", text), "write it like 5, 0.5s, 3m or 2h");
  return std::chrono::milliseconds(static_cast<int64_t>(value * seconds * 1000));
}

CommandLine parse_arguments(std::span<const std::string> args) {
  const std::string first = args.empty() ? "" : args[0];
  if (first == "--help" || first == "-h" || first == "help") return Notice{std::string(overview)};
  if (first == "--version") return Notice{"maniple " MANIPLE_VERSION "\n"};
  if (first == "generate") return parse_generate(args.subspan(1));
  if (first == "doctor") return parse_doctor(args.subspan(1));
  if (first == "tokenize") return parse_tokenize(args.subspan(1));
  if (first == "status") return parse_status(args.subspan(1));
  if (first == "merge") return parse_merge(args.subspan(1));
  const std::string list =
      fmt::format("maniple {} ...; maniple --help says more", fmt::join(commands, " ..., maniple "));
  if (first.empty() || first.starts_with("-")) refuse("the first word must be a command", list);
  refuse(fmt::format("unknown command {}", first), did_you_mean(first, commands, list));
}

}  // namespace maniple
