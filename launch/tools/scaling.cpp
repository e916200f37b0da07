#include <launch/commands/run_identity.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/report.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/tools/options/scaling_options.hpp>
#include <launch/tools/scaling/study_launches.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>

#include <fmt/ranges.h>

namespace maniple {

namespace fs = std::filesystem;

namespace {

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

ExitCode run_scaling(const ScalingOptions& options) {
  if (options.plan)
    plan(options);
  else
    print_next(options.study);
  return ExitCode::complete;
}

}  // namespace maniple
