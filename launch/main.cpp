// From command line to task: finds out who started us, reads the command line, and turns every end into one message and one exit code.
#include <launch/commands.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/report.hpp>
#include <launch/process/launcher.hpp>
#include <launch/process/signals.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace maniple {
namespace {

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

int report(const Error& error) {
  say(error_block(error));
  return static_cast<int>(error.code());
}

int print(const Notice& notice) {
  end_on_closed_pipe();
  std::fputs(notice.text.c_str(), stdout);
  flush_stdout();
  return 0;
}

int run(const LocalTask& task) {
  end_on_closed_pipe();
  return static_cast<int>(task());
}

int run(const Task& task, const Launch& launch) {
  if (const auto* job = std::get_if<JobTask>(&task)) return run_on_all_ranks(*job);
  if (launch.rank != 0) return 0;
  const auto* notice = std::get_if<Notice>(&task);
  return notice ? print(*notice) : run(std::get<LocalTask>(task));
}

// The other ranks may have a valid command line, so this rank joins them to report its mistake.
int report_bad_command_line(const Error& mistake, const Launch& launch) {
  if (!launch.under_mpi) return launch.rank == 0 ? report(mistake) : 0;
  JobOptions options;
  options.start_deadline = options.deadline = std::chrono::minutes(1);
  options.mistake = mistake;
  options.launch = launch;
  return run_on_all_ranks({std::make_shared<const JobOptions>(std::move(options)), false,
                           [](World&, const Supervision&) { return ExitCode::usage; }});
}

std::variant<Task, Error> task_of(const std::vector<std::string>& args, const Launch& launch) try {
  return read_command_line(args, launch);
} catch (const std::exception& error) {
  return error_of(error);
}

int guarded_main(const std::vector<std::string>& args, const Launch& launch) try {
  const std::variant<Task, Error> task = task_of(args, launch);
  const Error* mistake = std::get_if<Error>(&task);
  return mistake ? report_bad_command_line(*mistake, launch) : run(std::get<Task>(task), launch);
} catch (const std::exception& error) {
  // All ranks see the same launch mistake, and rank 0 reports it. The launcher may
  // kill all copies when the first one leaves, so the others leave a second later.
  const Error failure = error_of(error);
  if (launch.rank == 0 || failure.code() != ExitCode::preflight) return report(failure);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  return static_cast<int>(failure.code());
}

}  // namespace

}  // namespace maniple

int main(int count, char** arguments) {
  maniple::Launch launch = maniple::detect_launch(maniple::environment);
  for (char** variable = environ; *variable; ++variable) launch.environment.emplace_back(*variable);
  maniple::prepare_for_stops(launch.rank);
  maniple::protect_standard_streams();
  return maniple::guarded_main({arguments + 1, arguments + count}, launch);
}
