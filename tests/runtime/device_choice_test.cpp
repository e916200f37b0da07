#include <gtest/gtest.h>
#include <kernels/factory/make_backend.hpp>
#include <kernels/support/check.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>
#include <runtime/device_choice.hpp>
#include <support/golden.hpp>

namespace maniple {
namespace {

template <typename F>
std::string refusal(F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
    return error.what();
  }
  return "accepted";
}

TEST(DeviceChoice, ARankTakesTheOnlyGpuOrTheOneOfItsPlaceOnTheNode) {
  for (int local_rank = 0; local_rank < 4; ++local_rank) {
    const RankLocation location{"n1", 0, local_rank, 4};
    EXPECT_EQ(choose_gpu(1, location, false), 0);  // its launcher shows it one
    EXPECT_EQ(choose_gpu(4, location, false), local_rank);
    EXPECT_EQ(choose_gpu(8, location, false), local_rank);
    EXPECT_EQ(choose_gpu(3, location, true), local_rank % 3);
  }
  EXPECT_EQ(refusal([] { choose_gpu(2, {"n1", 0, 0, 3}, false); }), "3 ranks of this node see 2 GPUs each");
}

TEST(DeviceChoice, TwoRanksWithTheSameGpuAreRefusedByName) {
  const std::vector<RankLocation> locations{
      {"n1", 0, 0, 2}, {"n1", 0, 1, 2}, {"n2", 1, 0, 2}, {"n2", 1, 1, 2}};
  EXPECT_EQ(refusal([&] {
              refuse_shared_gpus({"GPU-a", "GPU-b", "GPU-c", "GPU-d"}, locations);
            }),
            "accepted");
  EXPECT_EQ(refusal([&] { refuse_shared_gpus({"", "", "", ""}, locations); }), "accepted");
  EXPECT_EQ(refusal([&] {
              refuse_shared_gpus({"GPU-a", "GPU-b", "GPU-c", "GPU-c"}, locations);
            }),
            "ranks 2 and 3 on n2 have the same GPU, GPU-c");
}

TEST(DeviceChoice, ACacheThatNoKernelKeepsIsRefused) {
  const KvLayout latent{1, 576, 256, DType::fp8, 512, true};
  const auto plain = scheme_of({}),
             asking = scheme_of(read_model_config(testing::model_directory("q-fp8-static-kv")));
  refuse_cache({2, 64, 256, DType::fp8}, DType::bf16, *plain);
  refuse_cache({2, 64, 256, DType::bf16}, DType::bf16, *plain);
  for (const QuantScheme* scheme : {plain.get(), asking.get()}) try {
      refuse_cache(latent, DType::bf16, *scheme);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), scheme == plain.get() ? ExitCode::usage : ExitCode::input);
      EXPECT_STREQ(error.what(),
                   "no attention reads keys and values in fp8 (`kv_cache_dtype`), for latent rows of 576 and "
                   "activations in bf16");
      EXPECT_EQ(error.remedy(), "`kv_cache_dtype` bf16");
    }
}

TEST(DeviceChoice, TheCacheTakesThreeFifthsOfAHostsFreeMemoryOrWhatTheUtilizationOfAGpuLeaves) {
  EXPECT_EQ(cache_memory({.total = 0, .free = 1200, .reserved = 100, .sharers = 2}, 0.9), 300U);
  EXPECT_EQ(cache_memory({.total = 0, .free = 100, .reserved = 100, .sharers = 2}, 0.9), 0U);
  EXPECT_EQ(cache_memory({.total = 0, .free = 1200, .reserved = 100, .sharers = 2, .addresses = 300}, 0.9),
            120U);
  EXPECT_EQ(cache_memory({.total = 0, .free = 1200, .reserved = 100, .sharers = 2, .addresses = 50}, 0.9),
            0U);
  EXPECT_EQ(cache_memory({.total = 1000, .free = 700, .reserved = 150, .sharers = 1}, 0.5), 50U);
  EXPECT_EQ(cache_memory({.total = 1000, .free = 700, .reserved = 50, .sharers = 2}, 0.5), 50U);
  EXPECT_EQ(cache_memory({.total = 1000, .free = 400, .reserved = 50, .sharers = 1}, 0.5), 0U);
}

}  // namespace
}  // namespace maniple
