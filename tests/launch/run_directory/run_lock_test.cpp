#include "run_directory_testing.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace maniple {
namespace {

using testing::FileLimit;
using testing::Scratch;
using namespace std::chrono_literals;

constexpr LockTiming quick{50ms, 600ms};
constexpr LockTiming never{1h, 600ms};  // no heartbeat

std::filesystem::path prepared(const Scratch& scratch) {
  std::filesystem::create_directory(scratch.path() / "jobs");
  return scratch.path();
}

JobOwner elsewhere() {  // another host: this one cannot see whether its process is alive
  JobOwner owner = this_process("elsewhere", "812345");
  owner.machine = "another";
  return owner;
}

void end_by_itself(const RunLock& lock) { testing::write_content(lock.folder() / job_record_name, "{}"); }

TEST(JobFolders, ThatCannotBeListedAreNotTakenForNone) {
  const Scratch scratch;
  EXPECT_TRUE(job_folders(scratch.path()).empty());
  prepared(scratch);
  const RunLock lock(scratch.path(), elsewhere(), quick);
  EXPECT_EQ(job_folders(scratch.path()).size(), 1U);
  {
    const FileLimit none(0);
    ASSERT_THROW(job_folders(scratch.path()), Error);
    EXPECT_THROW(RunLock(scratch.path(), elsewhere(), quick), Error);
  }
  EXPECT_TRUE(lock.is_held());
}

TEST(RunLock, RefusesASecondJobAndNamesTheFirst) {
  const Scratch scratch;
  const RunLock first(prepared(scratch), elsewhere(), quick);
  try {
    RunLock(scratch.path(), this_process("here", ""), quick);
    FAIL() << "two jobs own one directory";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
    EXPECT_NE(
        std::string(error.what()).find("job 812345, process " + std::to_string(::getpid()) + " on elsewhere"),
        std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(first.is_held());
}

TEST(RunLock, IsFreeAtOnceAfterAJobThatEndedByItself) {
  const Scratch scratch;
  end_by_itself(RunLock(prepared(scratch), elsewhere(), never));
  const auto start = std::chrono::steady_clock::now();
  const RunLock second(scratch.path(), elsewhere(), quick);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 300ms);
  EXPECT_EQ(second.folder().filename(), "2");
}

TEST(RunLock, WaitsOutASilentJobWhichThenFindsThatItHasLost) {
  const Scratch scratch;
  const RunLock silent(prepared(scratch), elsewhere(), never);
  const auto start = std::chrono::steady_clock::now();
  const RunLock second(scratch.path(), elsewhere(), quick);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 600ms);
  EXPECT_FALSE(silent.is_held());
  EXPECT_THROW(silent.check_held(), Error);
  EXPECT_TRUE(second.is_held());
}

TEST(RunLock, DoesNotWaitForAProcessOfThisMachineThatWasKilled) {
  const Scratch scratch;
  prepared(scratch);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(scratch.path(), this_process("here", ""), quick);
    ::pause();
  }
  while (job_folders(scratch.path()).empty() || !running_owner(job_folders(scratch.path()).back()))
    std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(is_gone(*running_owner(job_folders(scratch.path()).back())));
  ::kill(child, SIGKILL);
  const RunLock second(scratch.path(), this_process("here", ""), LockTiming{50ms, 1h});
  EXPECT_EQ(second.folder().filename(), "2");
  ::waitpid(child, nullptr, 0);
}

TEST(RunLock, AProcessThatProcDoesNotShowIsGoneOnlyIfItCannotBeSignalled) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const FileLimit none(0);  // stands in for hidepid: nothing of /proc can be read
  JobOwner owner = this_process("here", "");
  EXPECT_FALSE(is_gone(owner));
  owner.pid = child;
  EXPECT_TRUE(is_gone(owner));
}

TEST(RunLock, OfAContainerOfThisMachineLooksGoneWithoutAProcessThatStartedThen) {
  JobOwner owner = this_process("here", "");
  const bool sees_all = owner.machine.ends_with("pid:[4026531836]");  // no container
  owner.machine = owner.machine.substr(0, owner.machine.find(' ')) + " pid:[1]";
  EXPECT_FALSE(is_gone(owner) || looks_gone(owner));
  owner.start += uint64_t{1} << 40;
  EXPECT_FALSE(is_gone(owner));
  EXPECT_EQ(looks_gone(owner), sees_all);
  owner.machine = "another pid:[1]";
  EXPECT_FALSE(looks_gone(owner));
}

TEST(RunLock, OfManyConcurrentStartsExactlyOneWins) {
  for (int round = 0; round < 6; ++round) {
    const Scratch scratch;
    prepared(scratch);
    if (round % 2 == 1) RunLock(scratch.path(), elsewhere(), never);  // silent: all wait, then race
    std::atomic<int> owners = 0, refused = 0;
    std::atomic<bool> judged = false;
    {
      std::vector<std::jthread> starts;
      for (int i = 0; i < 8; ++i)
        starts.emplace_back([&] {
          try {
            const RunLock lock(scratch.path(), elsewhere(), quick);
            if (++owners + refused == 8) judged = true;
            while (!judged) std::this_thread::sleep_for(1ms);
          } catch (const Error&) {
            if (++refused + owners == 8) judged = true;
          }
        });
    }
    EXPECT_EQ(owners, 1);
    EXPECT_EQ(refused, 7);
  }
}

TEST(RunLock, OfManyConcurrentProcessesExactlyOneWins) {
  const Scratch scratch;
  prepared(scratch);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        const RunLock lock(scratch.path(), this_process("here", ""), quick);
        std::this_thread::sleep_for(3s);  // until all others have judged
        ::_exit(0);
      } catch (const Error&) {
        ::_exit(1);
      }
    }
    children.push_back(child);
  }
  int winners = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    winners += WEXITSTATUS(status) == 0 ? 1 : 0;
  }
  EXPECT_EQ(winners, 1);
}

}  // namespace
}  // namespace maniple
