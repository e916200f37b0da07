#include <kernels/backend.hpp>
#include <kernels/cpu/thread_pool.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace maniple {
namespace {

TEST(ThreadPool, RunsEveryThreadOnceInEachOfManyRegions) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::vector<int> calls(static_cast<size_t>(threads));
    for (int i = 0; i < 1000; ++i) pool.run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
    EXPECT_TRUE(std::all_of(calls.begin(), calls.end(), [](int n) { return n == 1000; }));
  }
}

TEST(ThreadPool, RangesCoverEverythingOnceAndAreNotSmallerThanTheGrain) {
  ThreadPool pool(3);
  for (const int64_t count : {0, 1, 2, 7, 30, 31, 1000})
    for (const int64_t grain : {1, 10, 64}) {
      std::vector<std::atomic<int>> touched(static_cast<size_t>(count));
      pool.parallel_ranges(count, grain, [&](IndexRange range) {
        EXPECT_TRUE(range.size() >= grain || range.end == count);
        for (int64_t i = range.begin; i < range.end; ++i) ++touched[static_cast<size_t>(i)];
      });
      EXPECT_TRUE(std::all_of(touched.begin(), touched.end(), [](const auto& n) { return n == 1; }));
    }
}

TEST(ThreadPool, EveryTaskRunsOnce) {
  ThreadPool pool(3);
  for (const int64_t count : {0, 1, 2, 100}) {
    std::vector<std::atomic<int>> touched(static_cast<size_t>(count));
    pool.parallel_tasks(count, [&](int64_t task) { ++touched[static_cast<size_t>(task)]; });
    EXPECT_TRUE(std::all_of(touched.begin(), touched.end(), [](const auto& n) { return n == 1; }));
  }
}

TEST(ThreadPool, RethrowsTheExceptionOfAnyThreadAndGoesOn) {
  ThreadPool pool(4);
  for (int guilty = 0; guilty < 4; ++guilty) {
    EXPECT_THROW(pool.run([&](int thread) {
      if (thread == guilty) throw std::runtime_error("guilty");
    }),
                 std::runtime_error);
    std::atomic<int> runs{0};
    pool.run([&](int) { ++runs; });
    EXPECT_EQ(runs, 4);
  }
}

TEST(ThreadPool, RefusesARegionInsideAnother) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.run([&](int) { pool.run([](int) {}); }), Error);
  EXPECT_THROW(pool.parallel_ranges(1, 8, [&](IndexRange) { pool.parallel_tasks(1, [](int64_t) {}); }),
               Error);
}

TEST(ThreadPool, RefusesACpuThatTheProcessMayNotUse) {
  const std::vector<int> cpus{100000, 100001};
  EXPECT_THROW(ThreadPool(2, cpus), Error);
}

}  // namespace
}  // namespace maniple
