#include <launch/commands/run_identity.hpp>
#include <launch/options/grammar.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/report.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/tools/scaling/study_launches.hpp>
#include <launch/tools/tools.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <regex>
#include <set>

namespace maniple {

namespace fs = std::filesystem;

namespace {

// "1,2,4": each once, ascending.
Value<std::string> sizes(std::set<int>& target) {
  return parsed("N,N,...", target, [](const std::string& name, const std::string& text) {
    std::set<int> chosen;
    for (const std::string& word : split_at_commas(text))
      chosen.insert(parse_number(name, word, 1, most_ranks));
    return chosen;
  });
}

using AxisSizes = std::array<std::set<int>, study_axes.size()>;

void check_axes(const AxisSizes& sizes) {
  std::vector<size_t> several;
  int64_t ranks = 1;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis].size() > 1) several.push_back(axis);
    ranks = std::min<int64_t>(ranks * *sizes[axis].rbegin(), most_ranks + 1);
  }
  if (several.size() > 1) {
    const char *first = study_axes[several[0]].name, *second = study_axes[several[1]].name;
    const auto &of_first = sizes[several[0]], &of_second = sizes[several[1]];
    refuse(
        fmt::format("--{} and --{} both have several sizes", first, second),
        fmt::format("a study for each: --{} {} --{} {}, or --{} {} --{} {}", first, fmt::join(of_first, ","),
                    second, *of_second.begin(), first, *of_first.begin(), second, fmt::join(of_second, ",")),
        "a study goes over one of them: a line through both would mix two ways of becoming slower");
  }
  if (ranks > most_ranks)
    refuse(fmt::format("--tp {} with --pp {} and --dp {} has more than {} ranks", *sizes[0].rbegin(),
                       *sizes[1].rbegin(), *sizes[2].rbegin(), most_ranks),
           "give smaller sizes");
}

std::vector<StudyPoint> points_of(const AxisSizes& sizes) {
  check_axes(sizes);
  std::vector<StudyPoint> points{{}};
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    std::vector<StudyPoint> with_axis;
    for (StudyPoint point : points)
      for (const int size : sizes[axis]) {
        point.*study_axes[axis].size = size;
        with_axis.push_back(point);
      }
    points = std::move(with_axis);
  }
  return points;
}

// ${NAME} is the shell's.
void check_launcher(const StudySettings& settings) {
  static const std::regex place(R"((^|[^$])\{(\w*)\})");
  constexpr std::array<std::string_view, 6> known = {"ranks", "nodes", "ranks_per_node", "tp", "pp", "dp"};
  std::set<std::string> found;
  const std::string& text = settings.launcher;
  for (std::sregex_iterator at(text.begin(), text.end(), place), end; at != end; ++at)
    found.insert(at->str(2));
  for (const std::string& name : found)
    if (std::ranges::find(known, name) == known.end())
      refuse(fmt::format("--launcher ({}) has the unknown {{{}}}", text, name),
             "it may have {ranks}, {nodes}, {ranks_per_node}, {tp}, {pp} and {dp}");
  if (!found.contains("ranks"))
    refuse(fmt::format("--launcher ({}) has no {{ranks}}", text), "--launcher 'mpirun -n {ranks}'",
           "every point would have the same number of ranks");
  if (settings.ranks_per_node == 0 && (found.contains("nodes") || found.contains("ranks_per_node")))
    refuse(fmt::format("--launcher ({}) needs --ranks-per-node", text),
           "--ranks-per-node 8, the ranks of a full node");
}

// What follows -- is for bench throughput: --max-num-seqs 64 --no-prefix-cache.
void take_further_options(std::span<const std::string> words, std::map<std::string, std::string>& workload) {
  std::string* value = nullptr;
  for (const std::string& word : words) {
    if (word.starts_with("--"))
      value = &workload[word.substr(2)];
    else if (value && value->empty())
      *value = word;
    else
      refuse(fmt::format("\"{}\" belongs to no option", word),
             "maniple scaling plan DIR ... -- --max-num-seqs 64: behind -- are options of bench throughput");
  }
}

void check_words(const std::vector<std::string>& words, ScalingOptions& options) {
  const std::vector<std::string> known = {"plan", "next"};
  const std::string forms =
      "maniple scaling plan DIR --model M --mode strong --dp 1,2,4, or maniple scaling next DIR";
  if (words.empty()) refuse("scaling takes what to do", forms);
  if (std::ranges::find(known, words[0]) == known.end())
    refuse(fmt::format("scaling does not know {}", words[0]), did_you_mean(words[0], known, forms));
  if (words.size() < 2) refuse(fmt::format("scaling {} takes a folder, that of the study", words[0]), forms);
  options.plan = words[0] == "plan";
  options.study = words[1];
  if (options.study.filename().empty()) options.study = options.study.parent_path();  // study/
}

// The study says what is launched.
void check_next(const Grammar& grammar, std::span<const std::string> words) {
  const auto written =
      std::ranges::find_if(grammar.given(), [&](const auto& option) { return grammar.wrote(option.first); });
  if (words.size() > 2 || written != grammar.given().end())
    refuse(fmt::format("scaling next takes no {}", words.size() > 2 ? words[2] : "--" + written->first),
           fmt::format("maniple scaling next {}", words[1]),
           "the study was planned with all its options; another choice is another study");
}

// How this process was started: from PATH, or by a path, which must hold in any folder.
std::string program() {
  const std::string words = read_optional_file("/proc/self/cmdline").value_or("maniple");
  const std::string first = words.c_str();
  return first.find('/') == std::string::npos ? first : fs::absolute(first).lexically_normal().string();
}

void plan(const ScalingOptions& options) {
  const ModelFiles files(options.settings.model);
  const Study study =
      make_study(options.settings, fmt::format("{:016x}", model_hash(files)), read_model_config(files));
  const bool is_new = write_study(study, options.study);
  say(fmt::format("maniple: {} {}: {} points x {} rounds; cluster/scaling/run {} runs them\n",
                  options.study.string(), is_new ? "is planned" : "holds this study already",
                  study.points.size(), study.rounds, options.study.string()));
}

void tell_of_skipped(const std::vector<StudyLaunch>& launches) {
  for (const StudyLaunch& launch : launches)
    if (launch.skipped())
      say(
          fmt::format("maniple: {} is skipped: it failed {} times (exit codes {}); its output is there, and "
                      "without the file attempts it runs again\n",
                      launch.folder.string(), launch.attempts.size(), fmt::join(launch.attempts, ", ")));
}

// Behind # follows the launch's place in the study.
void print_next(const fs::path& folder) {
  const Study study = read_study(folder);
  const std::vector<StudyLaunch> launches = launches_of(study, folder);
  tell_of_skipped(launches);
  const auto next = std::ranges::find_if(launches, &StudyLaunch::waits);
  if (next == launches.end()) return;
  make_folder(next->folder);
  fmt::print("{}  # {}\n",
             command_of(study, next->point, program(), fs::absolute(next->folder / record_file_name)),
             place_of(next->point, next->round).string());
  flush_stdout();
}

}  // namespace

Parsed<ScalingOptions> parse_scaling(Grammar& grammar, Words args, const Launch& /*launch*/) {
  ScalingOptions options;
  StudySettings& study = options.settings;
  std::vector<std::string> words;
  AxisSizes axes = {{{1}, {1}, {1}}};
  grammar.take_words(words, {"plan", "next"});
  grammar.group("Plan");
  grammar.add("model", path("DIR", study.model), "Hugging Face directory, or a packed model");
  grammar.add("mode",
              choice("MODE", study.mode, {{"strong", ScalingMode::strong}, {"weak", ScalingMode::weak}}),
              "strong: the same work for any number of ranks; weak: the same for each rank");
  grammar.add("tp", sizes(axes[0]),
              "tensor ranks of a stage; several: the study goes over them [default: 1]");
  grammar.add("pp", sizes(axes[1]), "stages of a replica; several: the study goes over them [default: 1]");
  grammar.add("dp", sizes(axes[2]), "replicas; several: the study goes over them [default: 1]");
  grammar.add("rounds", number(study.rounds, 1, most_rounds).by_default("3"),
              "launches of each point, one after the other; an interval needs 6");
  grammar.add("launcher", text("COMMAND", study.launcher).by_default("mpirun -n {ranks}"),
              "starts a point; {ranks}, {nodes}, {ranks_per_node}, {tp}, {pp} and {dp} become numbers");
  grammar.add("ranks-per-node", number(study.ranks_per_node, 1, 100'000), "of a full node, for {nodes}");
  grammar.group("Work of a launch, as for bench throughput");
  grammar.add("num-prompts", number(study.num_prompts, 1, 100'000'000).by_default("100"),
              "requests; with --mode weak of each rank");
  const auto passed_on = [&](const char* name, const char* shown, const char* help, const char* by_default) {
    Value<std::string> value =
        parsed(shown, study.workload[name], [](const std::string&, const std::string& text) { return text; });
    grammar.add(name, by_default ? std::move(value).by_default(by_default) : std::move(value), help);
  };
  passed_on("lengths", "SPEC",
            "tokens of prompt and output: fixed:128/128, uniform:64-512/16-256, sharegpt, or a CSV file",
            "fixed:128/128");
  passed_on("seed", "N", "of lengths and prompts", "0");
  passed_on("warmup", "N", "repeats that do not count", "1");
  passed_on("repeats", "N", "in a launch; it counts with their median", "3");
  passed_on("dtype", "TYPE", "of weights", nullptr);
  passed_on("threads", "N", "of a rank", nullptr);
  if (const auto help = grammar.parse(args)) return Notice{*help};
  std::erase_if(study.workload, [](const auto& option) { return option.second.empty(); });
  check_words(words, options);
  if (!options.plan) return check_next(grammar, words), options;
  take_further_options(std::span(words).subspan(2), study.workload);
  if (study.model.empty()) refuse("no model was given", "--model DIR, the directory that holds config.json");
  study.points = points_of(axes);
  if (std::string& lengths = study.workload["lengths"]; lengths.ends_with(".csv"))
    lengths = std::filesystem::absolute(lengths).lexically_normal().string();
  check_launcher(study);
  return options;
}

ExitCode run_scaling(const ScalingOptions& options) {
  if (options.plan)
    plan(options);
  else
    print_next(options.study);
  return ExitCode::complete;
}

}  // namespace maniple
