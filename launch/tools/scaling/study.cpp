#include <kernels/support/check.hpp>
#include <launch/options/grammar.hpp>
#include <launch/options/usages.hpp>
#include <launch/output/output_file.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/tools/options/bench_options.hpp>
#include <launch/tools/scaling/study.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/job_plan.hpp>

#include <fmt/ranges.h>
#include <boost/algorithm/string/replace.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>

namespace maniple {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

namespace {

constexpr const char* schema = "maniple-study 1";

// Studies without stages are written as before there were any.
bool is_shown(const StudyAxis& axis, const StudyPoint& point) {
  return axis.size != &StudyPoint::pipeline || point.pipeline > 1;
}

// "tp1-dp4" or "tp 1, dp 4".
std::string join_sizes(const StudyPoint& point, const char* after_name, const char* separator) {
  std::vector<std::string> sizes;
  for (const StudyAxis& axis : study_axes)
    if (is_shown(axis, point))
      sizes.push_back(fmt::format("{}{}{}", axis.name, after_name, point.*axis.size));
  return fmt::format("{}", fmt::join(sizes, separator));
}

json in_json(const Study& study) {
  json points = json::array();
  for (const StudyPoint& point : study.points) {
    json& sizes = points.emplace_back();
    for (const StudyAxis& axis : study_axes)
      if (is_shown(axis, point)) sizes[axis.name] = point.*axis.size;
  }
  return {{"schema", schema},
          {"mode", name_of(study.mode)},
          {"model", study.model.string()},
          {"model_hash", study.model_hash},
          {"points", points},
          {"rounds", study.rounds},
          {"launcher", study.launcher},
          {"ranks_per_node", study.ranks_per_node},
          {"num_prompts", study.num_prompts},
          {"workload", study.workload}};
}

Study parse_study(const std::string& text, const fs::path& file) try {
  const json stored = json::parse(text);
  if (stored.at("schema") != schema)
    throw Error(
        ExitCode::input, fmt::format("{} has the schema {}", file.string(), stored.at("schema").dump()),
        fmt::format("this version understands \"{}\"", schema), "use the version that planned the study");
  Study study;
  study.mode = stored.at("mode") == "weak" ? ScalingMode::weak : ScalingMode::strong;
  study.model = stored.at("model").get<std::string>();
  study.model_hash = stored.at("model_hash");
  for (const json& sizes : stored.at("points")) {
    StudyPoint& point = study.points.emplace_back();
    for (const StudyAxis& axis : study_axes)
      if (sizes.contains(axis.name) || is_shown(axis, point)) point.*axis.size = sizes.at(axis.name);
  }
  study.rounds = stored.at("rounds");
  study.launcher = stored.at("launcher");
  study.ranks_per_node = stored.at("ranks_per_node");
  study.num_prompts = stored.at("num_prompts");
  study.workload = stored.at("workload").get<std::map<std::string, std::string>>();
  const auto is_sound = [](const StudyPoint& at) {
    return at.tensor > 0 && at.pipeline > 0 && at.data > 0 && at.tensor <= most_ranks / at.data / at.pipeline;
  };
  if (study.points.empty() || !std::ranges::all_of(study.points, is_sound) || study.rounds < 1 ||
      study.rounds > most_rounds)
    fail(ExitCode::input, "{} has no points or rounds, or impossible ones", file.string());
  return study;
} catch (const nlohmann::json::exception& error) {
  throw Error(ExitCode::input,
              fmt::format("{} cannot be understood: {}", file.string(), json_flaw(text, error)), "",
              "plan the study again in another folder");
}

// Nothing must come up in the middle of a study. Where the ranks are does not matter here.
void check_point(const Study& study, const StudyPoint& point, const ModelConfig& config) try {
  const std::vector<std::string> args = bench_of(study, point);
  Grammar grammar(args[0], bench_usage);
  const BenchOptions options = std::get<BenchOptions>(parse_bench(grammar, std::span(args).subspan(1), {}));
  const std::vector<RankLocation> locations(static_cast<size_t>(point.ranks()));
  plan_job(locations, options.engine, {BackendKind::reference, CpuPath::portable}, &config);
} catch (const Error& error) {
  throw Error(error.code(), fmt::format("{}: {}", sizes_text(point), error.what()),
              "every point of a study must be able to run", error.remedy());
}

std::string shell_word(std::string word) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  boost::algorithm::replace_all(word, "'", R"('\'')");
  return fmt::format("'{}'", word);
}

std::string launcher_of(const Study& study, const StudyPoint& point) {
  std::string line = study.launcher;
  const auto fill = [&](const std::string& name, int value) {
    boost::algorithm::replace_all(line, fmt::format("{{{}}}", name), std::to_string(value));
  };
  fill("ranks", point.ranks());
  for (const StudyAxis& axis : study_axes) fill(axis.name, point.*axis.size);
  if (study.ranks_per_node == 0) return line;
  fill("nodes", study.nodes_of(point));
  fill("ranks_per_node", std::min(study.ranks_per_node, point.ranks()));
  return line;
}

}  // namespace

Study make_study(const StudySettings& settings, std::string model_hash, const ModelConfig& config) {
  Study study{settings, std::move(model_hash)};
  study.model = fs::absolute(settings.model).lexically_normal();
  for (const StudyPoint& point : study.points) check_point(study, point, config);
  return study;
}

bool write_study(const Study& study, const fs::path& folder) {
  if (is_study(folder)) {
    const json there = in_json(read_study(folder)), here = in_json(study);
    for (const auto& [name, value] : here.items())
      if (there.at(name) != value)
        throw Error(ExitCode::input,
                    fmt::format("{} holds another study: its {} is {}, not {}", folder.string(), name,
                                there.at(name).dump(), value.dump()),
                    "records of two studies must not lie on one line",
                    "give another folder, or the settings of that study");
    return false;
  }
  std::error_code error;
  remove_unfinished_files(folder);
  if (fs::exists(folder) && !(fs::is_directory(folder) && fs::is_empty(folder, error)))
    throw Error(ExitCode::input, fmt::format("{} exists, and is no study", folder.string()),
                "its files are no records of this study", "give another folder");
  make_folder(folder);
  replace_file(folder / study_file_name, in_json(study).dump(2) + '\n');
  return true;
}

bool is_study(const fs::path& folder) { return fs::exists(folder / study_file_name); }

Study read_study(const fs::path& folder) {
  const fs::path file = folder / study_file_name;
  const std::optional<std::string> text = read_optional_file(file);
  if (!text)
    throw Error(ExitCode::input, fmt::format("there is no study in {}", folder.string()),
                fmt::format("it has no {}", study_file_name),
                fmt::format("maniple scaling plan {} ... makes one", folder.string()));
  return parse_study(*text, file);
}

const StudyAxis& Study::axis() const {
  const auto differs = [&](const StudyAxis& axis) {
    return points.front().*axis.size != points.back().*axis.size;
  };
  const auto found = std::ranges::find_if(study_axes, differs);
  return found == study_axes.end() ? study_axes.back() : *found;
}

std::string sizes_text(const StudyPoint& point) { return join_sizes(point, " ", ", "); }

std::string title_of(const Study& study) {
  const StudyPoint& first = study.points.front();
  std::vector<std::string> fixed;
  for (const StudyAxis& axis : study_axes)
    if (axis.size != study.axis().size && is_shown(axis, first))
      fixed.push_back(fmt::format("{} {}", axis.name, first.*axis.size));
  return fmt::format("{} scaling over {} ({})", name_of(study.mode), study.axis().name,
                     fmt::join(fixed, ", "));
}

std::string work_of(const Study& study) {
  const auto given = study.workload.find("lengths");
  const std::string lengths = given == study.workload.end() ? "" : given->second;
  return fmt::format("{} prompts{}, {}", study.num_prompts, study.mode == ScalingMode::weak ? " a rank" : "",
                     lengths.ends_with(".csv") ? fs::path(lengths).filename().string() : lengths);
}

fs::path place_of(const StudyPoint& point, int round) {
  return fs::path("points") / join_sizes(point, "", "-") / fmt::format("round-{}", round);
}

std::vector<std::string> bench_of(const Study& study, const StudyPoint& point) {
  std::vector<std::string> words = {"bench",         "throughput",
                                    "--model",       study.model.string(),
                                    "--tp",          std::to_string(point.tensor),
                                    "--num-prompts", std::to_string(study.prompts_of(point))};
  if (point.pipeline > 1) words.insert(words.end(), {"--pp", std::to_string(point.pipeline)});
  for (const auto& [name, value] : study.workload) {
    words.push_back("--" + name);
    if (!value.empty()) words.push_back(value);  // else a switch
  }
  return words;
}

std::string command_of(const Study& study, const StudyPoint& point, const std::string& program,
                       const fs::path& record) {
  std::string line = launcher_of(study, point) + ' ' + shell_word(program);
  for (const std::string& word : bench_of(study, point)) line += ' ' + shell_word(word);
  return line + " --record " + shell_word(record.string()) + " --overwrite --quiet";
}

}  // namespace maniple
