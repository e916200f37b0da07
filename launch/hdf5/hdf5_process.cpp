#include <kernels/support/check.hpp>
#include <kernels/support/file_descriptor.hpp>
#include <launch/hdf5/hdf5_process.hpp>

#include <fcntl.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace maniple {
namespace {

using Texts = std::vector<std::string>;

// Its exit status: 0, or the code of an Error, whose three texts it then writes. No exception may leave it: the child would go
// on as a second parent. What the C library prints of a damaged heap goes nowhere.
[[noreturn]] void be_child(int output, const std::function<Texts()>& read) noexcept {
  if (const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0)
    ::dup2(nowhere, STDERR_FILENO);
  int status = 0;
  Texts texts;
  try {
    texts = read();
  } catch (const Error& error) {
    status = static_cast<int>(error.code());
    texts = {error.what(), error.why(), error.remedy()};
  }
  std::FILE* const to = ::fdopen(output, "w");
  for (const std::string& text : texts) std::fwrite(text.c_str(), 1, text.size() + 1, to);
  ::_exit(std::fclose(to) == 0 ? status : EOF);
}

Texts texts_from(int input) {
  Texts texts;
  std::string text;
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while ((got = ::read(input, part.data(), part.size())) > 0 || (got < 0 && errno == EINTR))
    for (ssize_t i = 0; i < got; ++i)
      if (const char c = part[static_cast<size_t>(i)]; c != '\0')
        text += c;
      else
        texts.push_back(std::exchange(text, {}));
  return texts;
}

[[noreturn]] void refuse_crash(const std::filesystem::path& file, int status) {
  const std::string end = WIFSIGNALED(status) ? fmt::format("died of signal {}", WTERMSIG(status))
                                              : fmt::format("ended with {}", WEXITSTATUS(status));
  throw Error(ExitCode::input,
              fmt::format("{}: the process that read it with the HDF5 library {}", file.string(), end),
              "the file is damaged: the library trusts what it says of itself",
              "copy or make the file again");
}

}  // namespace

std::vector<std::string> in_hdf5_process(const std::filesystem::path& file,
                                         const std::function<std::vector<std::string>()>& read) {
  std::array<int, 2> ends{-1, -1};
  const pid_t child = ::pipe2(ends.data(), O_CLOEXEC) == 0 ? ::fork() : -1;
  if (child == 0) be_child(ends[1], read);
  const int error = errno;
  const FileDescriptor input(ends[0]);
  ::close(ends[1]);  // so that the child's end is the end of what can be read
  if (child < 0)
    fail(ExitCode::preflight, "cannot start a process that reads {}: {}", file.string(),
         std::generic_category().message(error));
  Texts texts = texts_from(input.get());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && texts.size() != 3)) refuse_crash(file, status);
  if (WEXITSTATUS(status) != 0)
    throw Error(static_cast<ExitCode>(WEXITSTATUS(status)), texts[0], texts[1], texts[2]);
  return texts;
}

}  // namespace maniple
