#include <launch/run_directory/durable_file.hpp>
#include <launch/run_directory/run_status.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <sstream>

namespace maniple {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::array<std::string_view, 4> state_names = {"running", "complete", "stopped", "fault"};

}  // namespace

std::string_view name_of(RunState state) { return state_names[static_cast<size_t>(state)]; }

std::optional<RunStatus> read_status(const fs::path& directory) {
  std::istringstream text(read_if_there(directory / status_name).value_or(""));
  std::string name;
  RunStatus status;
  text >> name >> status.exit_code;
  const auto found = std::find(state_names.begin(), state_names.end(), name);
  if (!text || found == state_names.end()) return std::nullopt;
  status.state = static_cast<RunState>(found - state_names.begin());
  return status;
}

std::string text_of(const RunStatus& status) {
  return fmt::format("{} {}\n", name_of(status.state), status.exit_code);
}

void write_status(const fs::path& directory, const RunStatus& status) {
  replace_file(directory / status_name, text_of(status));
}

std::optional<RunProgress> read_progress(const fs::path& directory) try {
  const json object = json::parse(read_if_there(directory / "progress.json").value_or(""));
  RunProgress progress;
  progress.requests = object.value("requests", uint64_t{0});
  progress.done = object.value("done", uint64_t{0});
  progress.failed = object.value("failed", uint64_t{0});
  progress.running = object.value("running", uint64_t{0});
  progress.waiting = object.value("waiting", uint64_t{0});
  progress.tokens_per_second = object.value("tokens_per_second", 0.0);
  progress.average_tokens_per_second = object.value("average_tokens_per_second", 0.0);
  if (object.contains("seconds_left")) progress.seconds_left = object["seconds_left"].get<double>();
  if (object.contains("seconds_to_limit"))
    progress.seconds_to_limit = object["seconds_to_limit"].get<double>();
  progress.stall = object.value("stall", "");
  progress.updated = object.value("updated", int64_t{0});
  return progress;
} catch (const json::exception&) {
  return std::nullopt;
}

void write_progress(const fs::path& directory, const RunProgress& progress) {
  json object = {{"requests", progress.requests},
                 {"done", progress.done},
                 {"failed", progress.failed},
                 {"running", progress.running},
                 {"tokens_per_second", progress.tokens_per_second},
                 {"waiting", progress.waiting},
                 {"average_tokens_per_second", progress.average_tokens_per_second},
                 {"updated", progress.updated}};
  if (progress.seconds_left) object["seconds_left"] = *progress.seconds_left;
  if (progress.seconds_to_limit) object["seconds_to_limit"] = *progress.seconds_to_limit;
  if (!progress.stall.empty()) object["stall"] = progress.stall;
  replace_file(directory / "progress.json", object.dump() + '\n');
}

}  // namespace maniple
