#include <kernels/support/check.hpp>
#include <launch/input/followed_input.hpp>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace maniple {
namespace {

constexpr int moment_ms = 200;  // the end of a job may wait this long for the reading thread
constexpr size_t read_bytes = size_t{1} << 16;

}  // namespace

// With O_NONBLOCK, open() does not wait for a FIFO's writer.
// Before the first writer poll() shows no end of input.
FollowedInput::FollowedInput(const std::string& path)
    : name_(path == "-" ? "stdin" : path),
      file_(path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (!file_ || ::fstat(file_.get(), &status) != 0) fail_to("open", name_);
  if (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))
    throw Error(ExitCode::usage,
                fmt::format("--follow is for pipes, and {} is a {}", name_,
                            S_ISREG(status.st_mode) ? "file" : "directory"),
                "who writes to a pipe can wait for an answer before the next line",
                "give --in - or a FIFO; or leave --follow out, for a file of requests");
}

std::optional<LineReader::Line> FollowedInput::next() {
  while (true) {
    while (std::optional<std::string> text = take_line()) {
      ++number_;
      text->erase(text->find_last_not_of('\r') + 1);
      if (text->find_first_not_of(" \t") != std::string::npos)
        return LineReader::Line{number_, std::move(*text)};
    }
    if (ended_) return std::nullopt;
    if (!receive()) return LineReader::Line{number_, ""};
  }
}

std::optional<std::string> FollowedInput::take_line() {
  size_t end = buffer_.find('\n', used_);
  if (end == std::string::npos && (!ended_ || used_ == buffer_.size())) return std::nullopt;
  end = std::min(end, buffer_.size());
  std::string line = buffer_.substr(used_, end - used_);
  used_ = std::min(end + 1, buffer_.size());
  return line;
}

bool FollowedInput::receive() {
  pollfd waiting{file_.get(), POLLIN, 0};
  if (::poll(&waiting, 1, moment_ms) <= 0) return false;
  buffer_.erase(0, std::exchange(used_, 0));
  const size_t held = buffer_.size();
  buffer_.resize(held + read_bytes);
  const ssize_t got = ::read(file_.get(), &buffer_[held], read_bytes);
  buffer_.resize(held + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0 && errno != EAGAIN && errno != EINTR) fail_to("read", name_);
  ended_ = got == 0;
  return got >= 0;
}

RequestLabel label_of_bad_line(const LineReader::Line& line) {
  const auto object = nlohmann::json::parse(line.text, nullptr, /*allow_exceptions=*/false);
  for (const char* name : {"custom_id", "id"}) {
    if (!object.is_object() || !object.contains(name)) continue;
    const nlohmann::json& id = object[name];
    const bool batch = *name == 'c';
    if (id.is_string() || (!batch && id.is_number_integer()))
      return {id.dump(), batch ? RequestShape::completion : RequestShape::plain};
  }
  return {std::to_string(line.number)};
}

}  // namespace maniple
