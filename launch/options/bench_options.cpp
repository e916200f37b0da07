#include <launch/options/job_options.hpp>
#include <launch/options/usages.hpp>

#include <algorithm>
#include <array>

namespace maniple {
namespace {

constexpr size_t largest_message = size_t{1} << 40;

template <typename T, size_t N>
std::vector<std::string> names_of(const std::array<T, N>& values) {
  std::vector<std::string> names;
  for (const T value : values) names.emplace_back(name_of(value));
  return names;
}

constexpr std::array benches = {BenchKind::comm, BenchKind::load};
constexpr std::array ops = {CommOp::all_reduce, CommOp::all_gather, CommOp::reduce_scatter, CommOp::broadcast,
                            CommOp::sendrecv};
constexpr std::array axes = {GroupAxis::tensor, GroupAxis::data, GroupAxis::world};

// Names with commas between them; each counts once.
template <typename T, size_t N>
Value<std::string> list(std::vector<T>& target, const std::array<T, N>& values) {
  const std::vector<std::string> known = names_of(values);
  Value<std::string> some_of =
      parsed("A,B,...", target, [=](const std::string& name, const std::string& text) {
        std::vector<T> chosen;
        for (size_t begin = 0; begin <= text.size();) {
          const size_t end = std::min(text.find(',', begin), text.size());
          const std::string word = text.substr(begin, end - begin);
          const auto at = std::ranges::find(known, word);
          if (at == known.end())
            refuse(fmt::format("--{} ({}) must be some of: {}", name, word, fmt::join(known, ", ")),
                   did_you_mean(word, known, fmt::format("--{} {}", name, fmt::join(known, ","))));
          const T value = values[static_cast<size_t>(at - known.begin())];
          if (std::ranges::find(chosen, value) == chosen.end()) chosen.push_back(value);
          begin = end + 1;
        }
        return chosen;
      });
  some_of.choices = known;
  return some_of;
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

void refuse_options_of_others(const BenchOptions& options) {
  constexpr std::array<std::pair<const char*, BenchKind>, 8> owners = {{{"op", BenchKind::comm},
                                                                        {"group", BenchKind::comm},
                                                                        {"begin", BenchKind::comm},
                                                                        {"end", BenchKind::comm},
                                                                        {"factor", BenchKind::comm},
                                                                        {"no-check", BenchKind::comm},
                                                                        {"model", BenchKind::load},
                                                                        {"cold", BenchKind::load}}};
  for (const auto& [option, owner] : owners)
    if (owner != options.bench && options.given.contains(option))
      refuse(fmt::format("--{} does not go with bench {}", option, name_of(options.bench)),
             fmt::format("leave it out: it belongs to bench {}", name_of(owner)));
}

void add_bench_options(Grammar& grammar, BenchOptions& options) {
  grammar.group("Every bench");
  grammar.add("warmup", number(options.warmup, 0, 1000).by_default("1"), "repeats that do not count");
  grammar.add("repeats", number(options.repeats, 1, 1000).by_default("6"),
              "repeats that count; an interval needs 6");
  grammar.add("json", path("FILE", options.json), "the numbers as JSON; - for stdout");
  grammar.add("overwrite", on(options.overwrite.asked), "--json may be a file that is not empty");
  grammar.add("require-valid", on(options.require_valid), "exit with 1 if the result is INVALID");
  grammar.add("quiet", on(options.quiet), "nothing on stderr but warnings and errors");
  grammar.add("dtype", dtype(options.dtype),
              "of messages or weights; auto: fp32 messages, weights as generate has them");
  grammar.group("comm");
  grammar.add("op", list(options.ops, ops), "operations [default: all]");
  grammar.add("group", list(options.groups, axes), "groups of the job's layout [default: all]");
  grammar.add("begin", message_size(options.begin), "smallest message [default: 8]");
  grammar.add("end", message_size(options.end), "largest message [default: 128M]");
  grammar.add("factor", number(options.factor, size_t{2}, size_t{1} << 20),
              "from one size to the next [default: 2]");
  grammar.add("no-check", on(options.check, false), "do not look at the values that arrive");
  grammar.group("load");
  grammar.add("model", path("DIR", options.engine.model), "Hugging Face directory");
  grammar.add("cold", on(options.cold), "drop the files from the page cache before each repeat");
}

}  // namespace

CommandLine parse_bench(std::span<const std::string> args) {
  BenchOptions options;
  std::vector<std::string> words;
  Grammar grammar("bench", bench_usage);
  grammar.take_words(words, names_of(benches));
  add_bench_options(grammar, options);
  add_rank_options(grammar, options);
  add_stop_options(grammar, options);
  if (const auto help = grammar.parse(args)) return Notice{*help};
  options.bench = bench_of(words);
  options.given = grammar.given();
  options.given["command"] = fmt::format("bench {}", name_of(options.bench));
  settle(options);
  refuse_options_of_others(options);
  if (options.end < options.begin)
    refuse(fmt::format("--end ({}) is below --begin ({})", options.end, options.begin),
           "give a larger --end or a smaller --begin");
  if (options.bench == BenchKind::load && options.engine.model.empty())
    refuse("no model was given", "--model DIR, the directory that holds config.json");
  options.overwrite.quiet = options.quiet;
  return options;
}

}  // namespace maniple
