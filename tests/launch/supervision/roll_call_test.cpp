#include <gtest/gtest.h>
#include <launch/supervision/start_deadline.hpp>
#include <parallel/self/self_world.hpp>
#include <support/temp_directory.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <vector>

namespace maniple {
namespace {

namespace fs = std::filesystem;

Launch of_four(int rank) {
  Launch launch;
  launch.rank = rank;
  launch.step = "7.0";
  launch.ranks = launch.local_size = 4;
  launch.local_rank = rank;
  return launch;
}

// Another rank at the point where it stops, dies or waits.
class OtherRank {
 public:
  OtherRank(const Launch& launch, const fs::path& folder, int signal, bool reports = false)
      : process_(::fork()) {
    if (process_ == 0) {
      RollCall call(launch, folder);
      if (reports) call.reported();
      ::raise(signal);
      ::_exit(0);
    }
    siginfo_t how{};
    ::waitid(P_PID, static_cast<id_t>(process_), &how, WEXITED | WSTOPPED | WNOWAIT);
  }
  ~OtherRank() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  OtherRank(const OtherRank&) = delete;
  OtherRank& operator=(const OtherRank&) = delete;

 private:
  pid_t process_;
};

TEST(RollCall, SaysWhoIsWhereAndLeavesNothingBehind) {
  const TempDirectory folder;
  const std::string node = "  " + host_name() + ": ";
  {
    const OtherRank stopped(of_four(0), folder.path(), SIGSTOP);
    const OtherRank dead(of_four(3), folder.path(), SIGKILL);
    RollCall call(of_four(1), folder.path());
    EXPECT_TRUE(call.reports()) << "rank 0 cannot";
    EXPECT_EQ(call.text(), node + "not come to MPI_Init: rank 2\n" + node + "died: rank 3\n" + node +
                               "stopped: rank 0\n" + node + "in MPI_Init: rank 1\n");
    EXPECT_FALSE(fs::is_empty(folder.path())) << "for rank 2";
    call.joined();
    EXPECT_NE(call.text().find("behind MPI_Init: rank 1\n"), std::string::npos) << call.text();
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(RollCall, HasOneRankThatReportsAlsoAfterItsEnd) {
  const TempDirectory folder;
  const RollCall call(of_four(1), folder.path());
  {
    const OtherRank dead(of_four(0), folder.path(), SIGKILL);
    EXPECT_TRUE(call.reports());
  }
  const OtherRank dead(of_four(0), folder.path(), SIGKILL, true);
  EXPECT_FALSE(call.reports());
}

TEST(RollCall, HasNoNameAnyMoreOnceAllHaveComeAndOneOfThemSpeaks) {
  const TempDirectory folder;
  const RollCall call(of_four(0), folder.path());
  const OtherRank second(of_four(1), folder.path(), SIGSTOP), third(of_four(2), folder.path(), SIGKILL);
  EXPECT_FALSE(fs::is_empty(folder.path()));
  const OtherRank last(of_four(3), folder.path(), SIGSTOP);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_TRUE(call.reports());
}

TEST(RollCall, IsNotMistakenByWhatAnEarlierJobOfTheSameNameLeft) {
  const TempDirectory folder;
  const std::vector<int64_t> old(4096, 1);
  std::ofstream(folder.path() / fmt::format("maniple-start-{}-7.0", ::getuid()))
      .write(reinterpret_cast<const char*>(old.data()), static_cast<std::streamsize>(old.size() * 8));
  const RollCall call(of_four(0), folder.path());
  EXPECT_NE(call.text().find("not come to MPI_Init: rank 1, rank 2, rank 3\n"), std::string::npos)
      << call.text();
}

TEST(RollCall, RemovesWhatKilledJobsLeftAndNothingElse) {
  const TempDirectory folder;
  const std::string prefix = fmt::format("maniple-start-{}-", ::getuid());
  const auto aged = [&](const std::string& name) {
    fs::last_write_time(folder / name, fs::file_time_type::clock::now() - std::chrono::hours(1));
  };
  Launch other = of_four(0);
  other.step = "alive";
  const OtherRank alive(other, folder.path(), SIGSTOP);
  for (const std::string& name : {prefix + "dead", prefix + "new", std::string("else")})
    folder.write(name, "x");
  for (const std::string& name : {prefix + "dead", prefix + "alive", std::string("else")}) aged(name);
  const RollCall call(of_four(0), folder.path());
  EXPECT_FALSE(fs::exists(folder / (prefix + "dead")));
  for (const std::string& name : {prefix + "alive", prefix + "new", std::string("else")})
    EXPECT_TRUE(fs::exists(folder / name)) << name;
}

TEST(RollCall, SaysWhatTheLauncherDoesNotTell) {
  const TempDirectory folder;
  Launch launch;
  EXPECT_NE(RollCall(launch, folder.path()).text().find("nothing is known"), std::string::npos);
  launch.step = "7.0";
  launch.rank = 5;
  const std::string text = RollCall(launch, folder.path()).text();
  EXPECT_NE(text.find("in MPI_Init: rank 5\n"), std::string::npos) << text;
  EXPECT_NE(text.find("does not tell how many ranks"), std::string::npos) << text;
}

}  // namespace
}  // namespace maniple
