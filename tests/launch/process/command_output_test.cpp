#include <gtest/gtest.h>
#include <launch/process/command_output.hpp>

#include <signal.h>

#include <thread>

namespace maniple {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(CommandOutput, IsAllThatWasWrittenToStandardOutput) {
  EXPECT_EQ(output_of({"sh", "-c", "echo error >&2; printf 'a b\\n'; cat"}, 10s), "a b\n");
  const auto much = output_of({"sh", "-c", "yes | head -c 300000"}, 10s);
  ASSERT_TRUE(much.has_value());
  EXPECT_EQ(much->size(), 300000u);
}

TEST(CommandOutput, OfAProgramThatIsNotThereIsNothing) {
  EXPECT_EQ(output_of({"no-such-program"}, 10s), std::nullopt);
}

TEST(CommandOutput, IsNothingAndInTimeIfTheProgramHangs) {
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(output_of({"sh", "-c", "echo begun; exec sleep 1000"}, 200ms), std::nullopt);
  EXPECT_LT(Clock::now() - start, 3s);
}

TEST(CommandOutput, IsGivenUpWhenAskedTo) {
  std::stop_source source;
  const std::jthread impatient([&source] {
    std::this_thread::sleep_for(100ms);
    source.request_stop();
  });
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(output_of({"sleep", "1000"}, 100s, source.get_token()), std::nullopt);
  EXPECT_LT(Clock::now() - start, 3s);
}

TEST(CommandOutput, TheProgramDoesNotInheritIgnoredSignals) {
  const auto before = ::signal(SIGUSR1, SIG_IGN);
  EXPECT_EQ(output_of({"sh", "-c", "kill -USR1 $$; echo ignored"}, 10s), "");
  ::signal(SIGUSR1, before);
}

}  // namespace
}  // namespace maniple
