#include <launch/output/report.hpp>
#include <launch/preflight/job_facts.hpp>
#include <launch/process/signals.hpp>
#include <launch/record/record_log.hpp>
#include <launch/run_directory/disk_wait.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/tools/analysis/summary_text.hpp>
#include <launch/tools/bench/bench_job.hpp>
#include <runtime/collective_phase.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

namespace maniple {
namespace {

// A file is whole or not there; pipes and devices are written as they are.
void write_result(const std::filesystem::path& path, const std::string& text) {
  std::error_code none;
  const bool is_place = std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none);
  if (!is_place) return replace_file(path, text);
  OutputFile place(path);
  place.write(text);
}

// A bench keeps nothing before its end, so neither does the log of one that was killed.
void check_record(const std::string& file, const Overwrite& overwrite) {
  check_output(file, overwrite, nullptr);
  const std::string log = file + ".log";
  if (!is_left_over(log)) return check_output(log, overwrite, nullptr);
  if (!overwrite.quiet)
    say(fmt::format("maniple: note: {} is of a bench that was killed; it is replaced\n", log));
}

}  // namespace

BenchJob::BenchJob(World& world, const BenchOptions& options, RankActivity& activity)
    : world_(world), options_(options), activity_(activity) {
  collective_phase(world, [&] {
    if (world.rank() != 0) return;
    if (options.json) maniple::check_output(*options.json, options.overwrite, nullptr);
    if (options.record) check_record(*options.record, options.overwrite);
    stdout_.emplace("-");
    if (!options.quiet) line_.emplace(terminal_columns(), ProgressLine::Clock::now());
  });
}

bool BenchJob::goes_on() {
  ++activity_.step;
  const bool stops = world_.rank() == 0 && (InterruptScope::flag() != 0 || failure_);
  std::string word = stops ? "stop" : "go on";
  world_.broadcast_bytes(word, 0);
  world_.barrier();
  return word != "stop";
}

std::optional<std::vector<double>> BenchJob::repeat(const std::function<double()>& once) {
  std::vector<double> seconds;
  for (int turn = -options_.warmup; turn < options_.repeats; ++turn) {
    if (!goes_on()) return std::nullopt;
    const double mine = once();
    if (turn >= 0) seconds.push_back(slowest(mine));
  }
  return seconds;
}

// The first call makes connections and touches memory; the second one says how many make a repeat.
std::optional<BenchJob::Calls> BenchJob::time_calls(const std::function<double(int)>& seconds_of) {
  constexpr double repeat_seconds = 0.01, most_calls = 1000;
  if (!goes_on()) return std::nullopt;
  seconds_of(1);
  if (!goes_on()) return std::nullopt;
  const double guess = std::max(slowest(seconds_of(1)), 1e-9);
  Calls calls{static_cast<int>(std::clamp(std::ceil(repeat_seconds / guess), 1.0, most_calls)), {}};
  std::optional<std::vector<double>> seconds = repeat([&] { return seconds_of(calls.count); });
  if (!seconds) return std::nullopt;
  calls.seconds = std::move(*seconds);
  return calls;
}

double BenchJob::slowest(double seconds) { return std::ranges::max(gather_values(world_, seconds)); }

uint64_t BenchJob::sum(uint64_t mine) {
  const std::vector<uint64_t> all = gather_values(world_, mine);
  return std::accumulate(all.begin(), all.end(), uint64_t{0});
}

void BenchJob::refuse_too_large(const Device& device, uint64_t bytes_of_a_rank, const std::string& what,
                                const std::string& why, const std::string& remedy) const {
  if (!device.shares_host_memory()) return;
  const RankLocation& here = world_.locations()[static_cast<size_t>(world_.rank())];
  const uint64_t needed = bytes_of_a_rank * static_cast<uint64_t>(here.local_size),
                 free = device.free_memory();
  if (needed > free)
    throw Error(
        ExitCode::preflight,
        fmt::format("{} need {} on {}, {} are free", what, bytes_text(needed), here.host, bytes_text(free)),
        why, remedy);
}

void BenchJob::print(const std::string& lines) {
  if (world_.rank() != 0 || failure_) return;
  if (line_) say(line_->clear());
  if (options_.json == "-") return say(lines);
  try {
    stdout_->write(lines);
  } catch (const Error& error) {
    failure_ = error;
  }
}

void BenchJob::progress(size_t done, size_t all, const std::string& what) {
  if (line_)
    say(line_->show(
        fmt::format("{:.1f}% {}/{} | {}", 100.0 * static_cast<double>(done) / static_cast<double>(all), done,
                    all, what),
        ProgressLine::Clock::now()));
}

void BenchJob::progress(const Progress& engine, const JobCounts& counts, double seconds) {
  if (line_)
    say(line_->update(job_progress(engine, counts, seconds, std::nullopt, world_.locations()),
                      ProgressLine::Clock::now()));
}

void BenchJob::check_output() const {
  if (failure_) throw CollectiveError(*failure_);
}

void BenchJob::write_json(const nlohmann::ordered_json& json) {
  if (!options_.json) return;
  const DiskWait wait(&activity_.disk);
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  try {
    if (*options_.json == "-")
      stdout_->write(text);
    else
      write_result(*options_.json, text);
  } catch (const Error& error) {
    throw CollectiveError(error);
  }
}

std::string microseconds(double seconds) { return number_text(seconds * 1e6); }

std::string microseconds(const Interval& seconds) {
  return limits_text({seconds.median * 1e6, seconds.low * 1e6, seconds.high * 1e6});
}

}  // namespace maniple
