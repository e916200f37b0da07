#include <kernels/support/check.hpp>
#include <launch/convert/progress_log.hpp>

#include <gtest/gtest.h>
#include <support/temp_directory.hpp>

#include <sys/resource.h>

#include <csignal>
#include <tuple>

namespace maniple {
namespace {

// The limit of a file's size stands in for a full disk.
TEST(ProgressLog, SaysOfAFullDiskThatTheSameCommandGoesOn) {
  const TempDirectory folder;
  ProgressLog log(folder / "m.h5.progress");
  log.start("a model", {});
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{8, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  try {
    log.append(3, {7});
    log.sync();
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::fault);
    EXPECT_TRUE(std::string_view(error.what()).ends_with(": the same command goes on")) << error.what();
    EXPECT_TRUE(error.why().starts_with("what is written stays")) << error.why();
    EXPECT_TRUE(error.remedy().ends_with("then run the same command again")) << error.remedy();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::ignore = std::signal(SIGXFSZ, old);
}

}  // namespace
}  // namespace maniple
