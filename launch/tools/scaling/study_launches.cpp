#include <kernels/support/check.hpp>
#include <launch/record/record_file.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/tools/scaling/study_launches.hpp>

#include <nlohmann/json.hpp>

#include <sstream>

namespace maniple {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> lines_of(const fs::path& file) {
  std::vector<std::string> lines;
  std::istringstream text(read_optional_file(file).value_or(""));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

// A record that cannot be read is made again.
std::optional<Record> record_of(const Study& study, const StudyLaunch& launch) try {
  const fs::path file = launch.folder / record_file_name;
  if (!fs::exists(file)) return std::nullopt;
  Record record = read_record(file);
  return reason_against(record, study, launch.point).empty() ? std::optional(std::move(record))
                                                             : std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace

std::string reason_against(const Record& record, const Study& study, const StudyPoint& point) {
  if (!record.complete) return "its job did not end";
  if (text_in(record, "command") != "bench throughput") return "it is not of bench throughput";
  if (text_in(record, "model_hash") != study.model_hash) return "its model is another one";
  const StoredTable* const topology = record.find("topology");
  const size_t ranks = topology ? topology->size() : 0;
  if (ranks != static_cast<size_t>(point.ranks())) return fmt::format("it has {} ranks", ranks);
  std::map<std::string, std::string> expected = study.workload;
  expected["tp"] = fmt::format("{}", point.tensor);
  if (point.pipeline > 1) expected["pp"] = fmt::format("{}", point.pipeline);
  expected["num-prompts"] = fmt::format("{}", study.prompts_of(point));
  const auto options = nlohmann::json::parse(text_in(record, "options"), nullptr, /*allow_exceptions=*/false);
  const nlohmann::json given =
      options.is_object() ? options.value("given", nlohmann::json::object()) : nlohmann::json::object();
  for (const auto& [name, value] : expected)
    if (!given.contains(name) || given[name] != value) return fmt::format("its --{} is another one", name);
  return {};
}

std::vector<StudyLaunch> launches_of(const Study& study, const fs::path& folder) {
  std::vector<StudyLaunch> launches;
  for (int round = 1; round <= study.rounds; ++round)
    for (const StudyPoint& point : study.points) {
      StudyLaunch& launch =
          launches.emplace_back(StudyLaunch{point, round, folder / place_of(point, round), {}, {}});
      launch.attempts = lines_of(launch.folder / "attempts");
      launch.record = record_of(study, launch);
    }
  return launches;
}

}  // namespace maniple
