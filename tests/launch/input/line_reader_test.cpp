#include <kernels/support/check.hpp>
#include <launch/input/line_reader.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>
#include <thread>

namespace maniple {
namespace {

// Files of this process may grow to so many bytes while it lives; a larger write fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

std::string complaint_about(const std::string& path) {
  const FileSizeLimit limit(100'000);  // in the middle of a part that is copied
  try {
    const LineReader reader(path);
    return "none";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(LineReader, SaysWhyAPipeCannotBeCopied) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  FileDescriptor input(ends[0]), output(ends[1]);
  const std::jthread writer([&] {
    const std::string part(1 << 16, 'x');
    while (::write(output.get(), part.data(), part.size()) > 0) continue;
  });
  const std::string path = fmt::format("/proc/self/fd/{}", ends[0]);
  EXPECT_EQ(complaint_about(path), fmt::format("cannot copy {} to a temporary file: File too large", path));
  input.reset();  // ends the writer
}

}  // namespace
}  // namespace maniple
