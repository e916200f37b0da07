#include <launch/options/job_grammar.hpp>
#include <launch/tools/options/bench_options.hpp>

#include <algorithm>
#include <array>
#include <limits>

namespace maniple {
namespace {

constexpr size_t largest_message = size_t{1} << 40;
constexpr uint32_t largest = 1'000'000;

template <typename T, size_t N>
std::vector<std::string> names_of(const std::array<T, N>& values) {
  std::vector<std::string> names;
  for (const T value : values) names.emplace_back(name_of(value));
  return names;
}

constexpr std::array benches = {BenchKind::throughput, BenchKind::latency, BenchKind::comm, BenchKind::load,
                                BenchKind::kernels};
constexpr std::array ops = {CommOp::all_reduce, CommOp::all_gather, CommOp::reduce_scatter, CommOp::broadcast,
                            CommOp::sendrecv};

// Names with commas between them; each counts once.
template <typename T, size_t N>
Value<std::string> list(std::vector<T>& target, const std::array<T, N>& values) {
  const std::vector<std::string> known = names_of(values);
  Value<std::string> some_of =
      parsed("A,B,...", target, [=](const std::string& name, const std::string& text) {
        std::vector<T> chosen;
        for (const std::string& word : split_at_commas(text)) {
          const auto at = std::ranges::find(known, word);
          if (at == known.end())
            refuse(fmt::format("--{} ({}) must be some of: {}", name, word, fmt::join(known, ", ")),
                   did_you_mean(word, known, fmt::format("--{} {}", name, fmt::join(known, ","))));
          const T value = values[static_cast<size_t>(at - known.begin())];
          if (std::ranges::find(chosen, value) == chosen.end()) chosen.push_back(value);
        }
        return chosen;
      });
  some_of.choices = known;
  return some_of;
}

Value<std::string> numbers(std::vector<uint32_t>& target) {
  return parsed("N,N,...", target, [](const std::string& name, const std::string& text) {
    std::vector<uint32_t> values;
    for (const std::string& word : split_at_commas(text)) {
      const auto value = parse_number<uint32_t>(name, word, 1, largest);
      if (std::ranges::find(values, value) == values.end()) values.push_back(value);
    }
    return values;
  });
}

Value<std::string> message_size(size_t& target) {
  return parsed("BYTES", target, [](const std::string& name, const std::string& text) {
    size_t size = 0;
    try {
      size = parse_bytes(text);
    } catch (const Error& error) {
      refuse(fmt::format("--{}: {}", name, error.what()), error.remedy());
    }
    if (size > largest_message)
      refuse(fmt::format("--{} ({}) is above 1T", name, text), fmt::format("--{} 1G", name));
    return size;
  });
}

BenchKind bench_of(const std::vector<std::string>& words) {
  const std::vector<std::string> known = names_of(benches);
  const std::string list = fmt::format("maniple bench {}", fmt::join(known, ", or maniple bench "));
  if (words.empty()) refuse("bench takes what to measure", list);
  const auto at = std::ranges::find(known, words[0]);
  if (at == known.end())
    refuse(fmt::format("unknown bench {}", words[0]), did_you_mean(words[0], known, list));
  if (words.size() > 1)
    refuse(fmt::format("bench measures one thing at a time, but \"{}\" follows {}", words[1], words[0]),
           "a job for each bench");
  return benches[static_cast<size_t>(at - known.begin())];
}

// Some options belong to some benches. Leaves the others out of what was given.
void refuse_options_of_others(const Grammar& grammar, BenchOptions& options) {
  using enum BenchKind;
  using Options = std::vector<const char*>;
  const std::pair<std::vector<BenchKind>, Options> owned[] = {
      {{throughput}, {"num-prompts"}},
      {{latency}, {"batch-size"}},
      {{throughput, latency},
       {"lengths", "in", "prefix", "load", "max-model-len", "repro", "eager", "max-num-seqs",
        "max-num-batched-tokens", "schedule", "kv-memory", "gpu-memory-utilization", "no-prefix-cache"}},
      {{throughput, latency, kernels}, {"seed", "block-size"}},
      {{throughput, latency, load, kernels}, {"model"}},
      {{comm}, {"op", "group", "begin", "end", "factor", "no-check"}},
      {{load}, {"cold"}},
      {{kernels}, {"shapes-of-tp"}}};
  for (const auto& [owners, names] : owned) {
    if (std::ranges::find(owners, options.bench) != owners.end()) continue;
    std::vector<std::string_view> others;
    for (const BenchKind owner : owners) others.push_back(name_of(owner));
    for (const char* option : names) {
      if (grammar.wrote(option))
        refuse(fmt::format("--{} does not go with bench {}", option, name_of(options.bench)),
               fmt::format("leave it out: it belongs to bench {}", fmt::join(others, ", ")));
      options.given.erase(option);
    }
  }
}

void check_files(const Grammar& grammar, const BenchOptions& options) {
  if (!options.in.empty() && grammar.wrote("lengths"))
    refuse("both --lengths and --in were given", "leave one of them out",
           "the requests of a file have lengths of their own");
  if (!options.in.empty() && options.prefix > 0)
    refuse("--prefix does not go with --in", "leave it out", "the prompts of a file are as they are");
  if (options.record && options.json &&
      std::filesystem::path(*options.record).lexically_normal() ==
          std::filesystem::path(*options.json).lexically_normal())
    refuse("--record and --json are the same file", "give each a name of its own");
}

// Benches that serve no requests take no memory for them.
void serve_nothing(EngineOptions& engine) {
  engine.max_num_seqs = 1;
  engine.max_num_batched_tokens = 16;
  engine.kv_blocks = 1;
  engine.eager = true;
}

void add_bench_options(Grammar& grammar, BenchOptions& options) {
  grammar.group("Every bench");
  grammar.add("warmup", number(options.warmup, 0, 1000).by_default("1"), "repeats that do not count");
  grammar.add("repeats", number(options.repeats, 1, 1000).by_default("6"),
              "repeats that count; an interval needs 6");
  grammar.add("json", path("FILE", options.json), "the numbers as JSON; - for stdout");
  grammar.add("record", path("FILE.h5|off", options.record),
              "the numbers, where they come from, and rows of what was measured; off, the default: none");
  grammar.add("overwrite", on(options.overwrite.asked),
              "--json and --record may be files that are not empty");
  grammar.add("require-valid", on(options.require_valid), "exit with 1 if the result is INVALID");
  grammar.add("quiet", on(options.quiet), "nothing on stderr but warnings and errors");
  grammar.group("throughput, latency");
  grammar.add("lengths", parsed("HOW", options.lengths, parse_lengths).by_default("fixed:128/128"),
              "tokens of prompts and outputs: fixed:P/O, uniform:P-P/O-O, sharegpt, or FILE.csv with lines "
              "of prompt,output");
  grammar.add("in", texts("FILE...", options.in).repeated(),
              "instead: requests as generate takes them, with their max_tokens");
  grammar.add("num-prompts", number(options.num_prompts, uint32_t{1}, largest),
              "throughput: requests at once [default: 1000; with a file all of its lines]");
  grammar.add("batch-size", numbers(options.batch_sizes),
              "latency: requests at once; several sizes one after the other [default: 8]");
  grammar.add("prefix", number(options.prefix, uint32_t{0}, largest).by_default("0"),
              "the first N tokens of all prompts are the same");
  grammar.add("seed", number(options.seed, uint64_t{0}, std::numeric_limits<uint64_t>::max()).by_default("0"),
              "of lengths, prompts and random weights");
  grammar.group("Model (throughput, latency; load, kernels: --model and --dtype)");
  add_model_options(grammar, options, /*if_no_model=*/nullptr);
  grammar.group("comm (messages are fp32, or --dtype)");
  grammar.add("op", list(options.ops, ops), "operations [default: all]");
  grammar.add("group", list(options.groups, group_axes), "groups of the job's layout [default: all]");
  grammar.add("begin", message_size(options.begin), "smallest message [default: 8]");
  grammar.add("end", message_size(options.end), "largest message [default: 128M]");
  grammar.add("factor", number(options.factor, size_t{2}, size_t{1} << 20),
              "from one size to the next [default: 2]");
  grammar.add("no-check", on(options.check, false), "do not look at the values that arrive");
  grammar.group("load");
  grammar.add("cold", on(options.cold), "drop the files from the page cache before each repeat");
  grammar.group("kernels");
  grammar.add("shapes-of-tp", numbers(options.shapes_of_tp),
              "tensor sizes whose parts of the model are measured, on any number of ranks [default: --tp]");
}

}  // namespace

Parsed<BenchOptions> parse_bench(Grammar& grammar, Words args, const Launch& launch) {
  BenchOptions options;
  std::vector<std::string> words;
  grammar.take_words(words, names_of(benches), [&] { options.bench = bench_of(words); });
  add_bench_options(grammar, options);
  add_rank_options(grammar, options);
  add_engine_options(grammar, options.engine);
  add_stop_options(grammar, options);
  if (const auto help = grammar.parse(args)) return Notice{*help};
  if (options.record == "off") options.record.reset();
  settle(options, grammar, launch);
  options.given["command"] = fmt::format("bench {}", name_of(options.bench));
  refuse_options_of_others(grammar, options);
  check_files(grammar, options);
  if (options.end < options.begin)
    refuse(fmt::format("--end ({}) is below --begin ({})", options.end, options.begin),
           "give a larger --end or a smaller --begin");
  if (options.bench != BenchKind::comm && options.engine.model.empty())
    refuse("no model was given", "--model DIR, the directory that holds config.json");
  if (!options.shapes_of_tp.empty() && options.engine.tensor_size != 1)
    refuse("both --tp and --shapes-of-tp were given", "leave one of them out");
  options.engine.seed = options.seed;
  if (!serves(options.bench)) serve_nothing(options.engine);
  options.loads_model = options.bench != BenchKind::kernels;
  options.overwrite.requeued = launch.requeued;
  options.overwrite.quiet = options.quiet;
  return options;
}

}  // namespace maniple
