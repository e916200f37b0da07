#include <emulation/race_detector.hpp>
#include <emulation/race_kernels.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace maniple {
namespace {

using cuda::Meeting;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What the detector says of some blocks of a kernel in the order in which it finds a race first.
std::string race_of(const std::function<void()>& kernel, int blocks = 1, bool names_lines = false) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    emulation::RaceDetector detector(names_lines);
    emulation::Order order{seed};
    try {
      emulation::run({blocks}, 64, 4096, order, kernel);
    } catch (const emulation::EmulationError& error) {
      return error.what();
    }
  }
  return "no race";
}
// A read that comes before the write that it races with finds nothing.
const auto is_a_race = AnyOf(HasSubstr("nothing orders them"), HasSubstr("nobody wrote byte "));

TEST(RaceDetector, NamesBothThreadsTheirBlockTheMemoryAndTheLines) {
  EXPECT_THAT(race_of(cuda::written_twice, 1, true),
              AllOf(HasSubstr("a race for byte 12 of shared memory: write by thread "),
                    HasSubstr("thread 5 of block (0, 0, 0) at race_kernels.cpp:"),
                    HasSubstr("thread 40 of block (0, 0, 0) at race_kernels.cpp:"), is_a_race));
}

TEST(RaceDetector, OrdersABlockByBarriersAndAWarpByItsBarriersButNotByExchanges) {
  const auto reversed = [](int among, Meeting meeting) {
    return race_of([=] { cuda::reversed(among, meeting); });
  };
  EXPECT_EQ(reversed(64, Meeting::block), "no race");
  EXPECT_EQ(reversed(32, Meeting::warp), "no race");
  EXPECT_THAT(reversed(64, Meeting::warp), is_a_race);
  for (const Meeting meeting : {Meeting::none, Meeting::shuffle, Meeting::ballot})
    EXPECT_THAT(reversed(32, meeting), is_a_race);
}

TEST(RaceDetector, FindsAWriteThatDoesNotFollowARead) {
  EXPECT_EQ(race_of([] { cuda::taking_turns(true); }), "no race");
  EXPECT_THAT(race_of([] { cuda::taking_turns(false); }),
              AllOf(HasSubstr("read by"), HasSubstr("write by"), is_a_race));
}

TEST(RaceDetector, TellsBytesApartAndFindsWhatNobodyWrote) {
  EXPECT_EQ(race_of(cuda::neighbouring_bytes), "no race");
  EXPECT_THAT(race_of(cuda::read_unwritten), HasSubstr("nobody wrote byte "));
}

TEST(RaceDetector, TakesACopyForAWriterThatItsThreadWaitsForAndOthersMeet) {
  const auto copied = [](bool waits, bool meets, bool own) {
    return race_of([=] { cuda::copied(waits, meets, own); });
  };
  EXPECT_EQ(copied(true, true, false), "no race");
  EXPECT_EQ(copied(true, false, true), "no race");
  EXPECT_THAT(copied(true, false, false), is_a_race);
  EXPECT_THAT(copied(false, true, false), HasSubstr("by a copy of thread "));
  EXPECT_THAT(copied(false, true, true), HasSubstr("by a copy of thread "));
}

TEST(RaceDetector, KnowsWhichCopiesAWaitIsFor) {
  const auto read = [](int group, int pending) {
    return race_of([=] { cuda::copied_in_groups(group, pending); });
  };
  EXPECT_THAT(read(0, 1), AllOf(HasSubstr("a copy of thread 0 outlives block (0, 0, 0)"), Not(is_a_race)));
  EXPECT_THAT(read(1, 1), is_a_race);
  EXPECT_EQ(read(1, 0), "no race");
}

TEST(RaceDetector, TakesAMatrixLoadForReadsOfTheLanesThatGetTheElements) {
  EXPECT_EQ(race_of([] { cuda::loaded_as_matrices(true); }), "no race");
  EXPECT_THAT(race_of([] { cuda::loaded_as_matrices(false); }), is_a_race);
}

TEST(RaceDetector, OrdersBlocksByFencesAndAnAtomicOperation) {
  using cuda::Arrival;
  const auto added = [](const Arrival& arrival) {
    return race_of([=] { cuda::added_by_the_last(arrival); }, 4);
  };
  EXPECT_EQ(added({}), "no race");
  EXPECT_EQ(added({.one_fences = true}), "no race");
  EXPECT_THAT(added({.fence_before = false}), is_a_race);
  EXPECT_THAT(added({.meets_before = false}), is_a_race);
  EXPECT_THAT(added({.meets_after = false}), is_a_race);
  EXPECT_THAT(added({.fence_after = false}), is_a_race);
  EXPECT_EQ(race_of([] { cuda::counted_by_blocks(true); }, 2), "no race");
  EXPECT_THAT(race_of([] { cuda::counted_by_blocks(false); }, 2),
              AllOf(HasSubstr("a race for global memory"), is_a_race));
}

}  // namespace
}  // namespace maniple
