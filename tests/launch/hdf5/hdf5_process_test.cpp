#include <kernels/support/check.hpp>
#include <launch/hdf5/hdf5_process.hpp>

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <tuple>

namespace maniple {
namespace {

using Texts = std::vector<std::string>;

Error error_of(const std::function<Texts()>& read) {
  try {
    in_hdf5_process("m.h5", read);
  } catch (const Error& error) {
    return error;
  }
  return {ExitCode::complete, "nothing was refused"};
}

TEST(Hdf5Process, ReturnsWhatTheChildReturns) {
  const Texts texts{"", "a line\n", std::string(1'000'000, 'x')};
  int changed = 0;
  EXPECT_EQ(in_hdf5_process("m.h5", [&] { return ++changed, texts; }), texts);
  EXPECT_EQ(in_hdf5_process("m.h5", [] { return Texts(); }), Texts());
  EXPECT_EQ(changed, 0);
}

TEST(Hdf5Process, ThrowsTheErrorOfTheChild) {
  const Error error = error_of([]() -> Texts { throw Error(ExitCode::preflight, "what", "", "remedy"); });
  EXPECT_EQ(error.code(), ExitCode::preflight);
  EXPECT_EQ(error.what() + error.why() + error.remedy(), "whatremedy");
}

// An exception that is no Error ends the child, and does not go on in it.
TEST(Hdf5Process, RefusesAFileThatEndsTheChild) {
  const auto refusal = [](int signal) {
    return fmt::format("m.h5: the process that read it with the HDF5 library died of signal {}", signal);
  };
  for (const int signal : {SIGKILL, SIGABRT}) {
    const Error error = error_of([&] { return std::ignore = std::raise(signal), Texts(); });
    EXPECT_EQ(error.code(), ExitCode::input);
    EXPECT_EQ(error.what(), refusal(signal));
    EXPECT_FALSE(error.why().empty() || error.remedy().empty());
  }
  EXPECT_EQ(error_of([]() -> Texts { throw std::bad_alloc(); }).what(), refusal(SIGABRT));
  EXPECT_EQ(error_of([]() -> Texts { ::_exit(1); }).code(), ExitCode::input);
}

}  // namespace
}  // namespace maniple
