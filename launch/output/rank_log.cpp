#include <launch/output/rank_log.hpp>

#include <fmt/chrono.h>

#include <fcntl.h>

#include <chrono>
#include <tuple>
#include <utility>

namespace maniple {

void RankLog::open(const std::filesystem::path& file) {
  const std::lock_guard lock(mutex_);
  file_.reset(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  write_out();
}

void RankLog::write(std::string_view line) {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm local{};  // fmt 12 has no localtime of its own
  ::localtime_r(&seconds, &local);
  const std::lock_guard lock(mutex_);
  waiting_ +=
      fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03} {}\n", local, now.time_since_epoch().count() % 1000, line);
  write_out();
}

void RankLog::write_out() {
  if (!file_) return;
  const std::string lines = std::exchange(waiting_, {});
  std::ignore = ::write(file_.get(), lines.data(), lines.size());
}

}  // namespace maniple
