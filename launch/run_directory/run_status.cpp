#include <launch/run_directory/durable_file.hpp>
#include <launch/run_directory/run_status.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <sstream>

namespace maniple {

namespace fs = std::filesystem;
using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RunProgress, requests, done, failed, running, waiting,
                                                tokens_per_second, average_tokens_per_second, stall, updated)

namespace {

constexpr std::array<std::string_view, 4> state_names = {"running", "complete", "stopped", "fault"};

}  // namespace

std::string_view name_of(RunState state) { return state_names[static_cast<size_t>(state)]; }

std::optional<RunStatus> read_status(const fs::path& directory) {
  std::istringstream text(read_optional_file(directory / status_name).value_or(""));
  std::string name;
  RunStatus status;
  text >> name >> status.exit_code;
  const auto found = std::find(state_names.begin(), state_names.end(), name);
  if (!text || found == state_names.end()) return std::nullopt;
  status.state = static_cast<RunState>(found - state_names.begin());
  return status;
}

std::string status_text(const RunStatus& status) {
  return fmt::format("{} {}\n", name_of(status.state), status.exit_code);
}

void write_status(const fs::path& directory, const RunStatus& status) {
  replace_file(directory / status_name, status_text(status));
}

std::optional<RunProgress> read_progress(const fs::path& directory) try {
  const json object = json::parse(read_optional_file(directory / "progress.json").value_or(""));
  auto progress = object.get<RunProgress>();
  if (object.contains("seconds_left")) progress.seconds_left = object["seconds_left"].get<double>();
  if (object.contains("seconds_to_limit"))
    progress.seconds_to_limit = object["seconds_to_limit"].get<double>();
  return progress;
} catch (const json::exception&) {
  return std::nullopt;
}

void write_progress(const fs::path& directory, const RunProgress& progress) {
  json object = progress;
  if (progress.seconds_left) object["seconds_left"] = *progress.seconds_left;
  if (progress.seconds_to_limit) object["seconds_to_limit"] = *progress.seconds_to_limit;
  if (progress.stall.empty()) object.erase("stall");
  replace_file(directory / "progress.json", object.dump() + '\n');
}

void write_experts(const fs::path& directory, const std::string& experts) {
  replace_file(directory / experts_name, experts + '\n');
}

}  // namespace maniple
