#include <launch/process/command_output.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

namespace maniple {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds glance{50};

// posix_spawn, because fork() copies locks of other threads and memory registered with the network card.
std::optional<pid_t> spawn(const std::vector<std::string>& command, int output) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);

  sigset_t none, ours;
  ::sigemptyset(&none);
  ::sigfillset(&ours);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  ::posix_spawnattr_setsigdefault(&attributes, &ours);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);

  pid_t child = 0;
  const int error = ::posix_spawnp(&child, arguments[0], &files, &attributes, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  return error == 0 ? std::optional(child) : std::nullopt;
}

// All up to the end of the stream.
std::optional<std::string> read_until(int input, Clock::time_point deadline, const std::stop_token& stop) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (Clock::now() < deadline && !stop.stop_requested()) {
    pollfd waiting{input, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(glance.count())) <= 0) continue;
    const ssize_t count = ::read(input, buffer.data(), buffer.size());
    if (count == 0) return text;
    if (count < 0 && errno != EINTR) return std::nullopt;
    if (count > 0) text.append(buffer.data(), static_cast<size_t>(count));
  }
  return std::nullopt;
}

// Not even SIGKILL ends a process that waits for a dead file system: such a process is left behind.
void end(pid_t child) {
  ::kill(child, SIGKILL);
  for (int tries = 0; tries < 20 && ::waitpid(child, nullptr, WNOHANG) == 0; ++tries)
    std::this_thread::sleep_for(glance);
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds patience, const std::stop_token& stop) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return std::nullopt;
  const std::optional<pid_t> child = spawn(command, pipe[1]);
  ::close(pipe[1]);
  std::optional<std::string> text;
  if (child) {
    text = read_until(pipe[0], Clock::now() + patience, stop);
    end(*child);
  }
  ::close(pipe[0]);
  return text;
}

}  // namespace maniple
