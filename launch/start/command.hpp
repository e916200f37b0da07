// A command of the program: what its command line may say, and what it does.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/options/grammar.hpp>
#include <launch/options/job_options.hpp>
#include <launch/supervision/supervision.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

namespace maniple {

// Work of one process, without MPI.
using LocalTask = std::function<ExitCode()>;

// Collective. Returns the exit code on rank 0; the other ranks return complete. When
// all ranks end together, rank 0 reports the reason and throws CollectiveError, and the
// others throw SilentExit. After any other exception the other ranks are still waiting.
using RunOnRanks = std::function<ExitCode(World& world, const Supervision& supervision)>;

// Work of all ranks of a job.
struct JobTask {
  std::shared_ptr<const JobOptions> options;
  bool stops_by_clock = false;  // before the job's time is over
  RunOnRanks run;
};

// What a command line asks for.
using Task = std::variant<Notice, LocalTask, JobTask>;

struct CommandRow {
  std::string_view name;
  std::string_view usage;  // the text above the options in its help
  // Throws Error (usage) on a mistake; (input) if the file of --config cannot be opened.
  Task (*read)(const CommandRow& command, Words args, const Launch& launch);
};

// The options of a command line, which are constant from here on; or a notice.
template <auto parse>
auto read_options(const CommandRow& command, Words args, const Launch& launch) {
  Grammar grammar(std::string(command.name), command.usage);
  return parse(grammar, args, launch);
}

template <auto parse, auto run>
Task in_one_process(const CommandRow& command, Words args, const Launch& launch) {
  auto parsed = read_options<parse>(command, args, launch);
  if (const auto* notice = std::get_if<Notice>(&parsed)) return *notice;
  return LocalTask([options = std::get<1>(std::move(parsed))] { return run(options); });
}

template <auto parse, auto run, bool stops_by_clock>
Task on_all_ranks(const CommandRow& command, Words args, const Launch& launch) {
  auto parsed = read_options<parse>(command, args, launch);
  if (const auto* notice = std::get_if<Notice>(&parsed)) return *notice;
  using Options = std::variant_alternative_t<1, decltype(parsed)>;
  const auto options = std::make_shared<const Options>(std::get<1>(std::move(parsed)));
  return JobTask{options, stops_by_clock, [options](World& world, const Supervision& supervision) {
                   return run(world, *options, supervision);
                 }};
}

// Collective over all processes of the launcher: joins them (MPI_Init), compares their options, runs the task, and shuts down. Returns the
// exit code of this process. Throws Error (preflight) where the launch is a mistake.
int run_on_all_ranks(const JobTask& task);  // meet.cpp

}  // namespace maniple
