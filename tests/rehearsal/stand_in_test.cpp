// That the stand-ins notice what the libraries would, or would punish without a word.
#include <kernels/cuda/cublaslt_gemm.hpp>
#include <kernels/cuda/cuda_device.hpp>
#include <rehearsal/stand_in_cuda.hpp>

#include <gtest/gtest.h>

#include <cstring>

namespace maniple {
namespace {

using cuda::CudaDevice;

constexpr size_t bytes = 64;

struct StandIn : ::testing::Test {
  CudaDevice device{0};
  Tensor memory{device, DType::uint8, {bytes}};
  std::byte* there = memory.view().data;
  cuda::Staging pinned{bytes};
  std::byte* here = pinned.memory.get();
};

TEST_F(StandIn, WorkWaitsUntilSomebodyWaitsForIt) {
  std::memset(here, 1, bytes);
  ASSERT_EQ(cudaMemcpyAsync(here, there, bytes, cudaMemcpyDeviceToHost, device.stream()), cudaSuccess);
  EXPECT_EQ(here[0], std::byte{1});
  device.synchronize();
  EXPECT_EQ(here[0], std::byte{0});
}

TEST_F(StandIn, AnEventIsPassedNotBeforeItsPlace) {
  ASSERT_EQ(cudaMemcpyAsync(here, there, bytes, cudaMemcpyDeviceToHost, device.stream()), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(pinned.copied.get(), device.stream()), cudaSuccess);
  std::memset(here, 1, bytes);
  EXPECT_EQ(cudaEventQuery(pinned.copied.get()), cudaErrorNotReady);
  EXPECT_EQ(here[0], std::byte{1});
  EXPECT_EQ(cudaEventQuery(pinned.copied.get()), cudaSuccess);
  EXPECT_EQ(here[0], std::byte{0});
}

TEST_F(StandIn, DeviceMemoryIsOutOfReach) {
  device.synchronize();
  EXPECT_DEATH(there[0] = std::byte{1}, "");
}

TEST_F(StandIn, FreshMemoryIsNotZero) {
  void* fresh = nullptr;
  ASSERT_EQ(cudaMalloc(&fresh, bytes), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(here, fresh, bytes, cudaMemcpyDeviceToHost, device.stream()), cudaSuccess);
  device.synchronize();
  EXPECT_NE(here[0], std::byte{0});
  cudaFree(fresh);
}

TEST_F(StandIn, CopiesKnowWhichSideIsWhich) {
  std::byte pageable[bytes];
  for (const cudaMemcpyKind kind : {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice})
    EXPECT_NE(cudaMemcpyAsync(pageable, here, bytes, kind, device.stream()), cudaSuccess) << kind;
  EXPECT_NE(cudaMemcpyAsync(there, pageable, bytes, cudaMemcpyHostToDevice, device.stream()), cudaSuccess);
  EXPECT_NE(cudaMemcpyAsync(there, here, bytes + 1, cudaMemcpyHostToDevice, device.stream()), cudaSuccess);
}

TEST_F(StandIn, WhatWaitsOrAllocatesSpoilsACapture) {
  EXPECT_THROW(device.capture([&] { device.synchronize(); }), Error);
  EXPECT_THROW(device.capture([&] { Tensor(device, DType::uint8, {1}); }), Error);
  EXPECT_THROW(device.capture([&] { device.upload(there, here, 1); }), Error);
  EXPECT_TRUE(device.capture([&] { device.copy(there, there + 32, 32); }));
}

TEST_F(StandIn, AGraphRunsWhenItIsLaunchedAndEveryTime) {
  int runs = 0;
  const auto graph = device.capture([&] { rehearsal::enqueue(device.stream(), [&](auto&) { ++runs; }); });
  device.synchronize();
  EXPECT_EQ(runs, 0);
  for (int i = 0; i < 2; ++i) graph->replay();
  device.synchronize();
  EXPECT_EQ(runs, 2);
}

TEST_F(StandIn, LaunchesBeyondTheLimitsAreRefused) {
  const auto launch = [&](emulation::Grid grid, int threads, size_t shared) {
    rehearsal::launch(device.stream(), grid, threads, shared, [](auto&) {});
  };
  EXPECT_NO_THROW(launch({1 << 20, 65535, 1}, 1024, 99 << 10));
  EXPECT_THROW(launch({1, 65536, 1}, 32, 0), Error);
  EXPECT_THROW(launch({1, 1, 1}, 1056, 0), Error);
  EXPECT_THROW(launch({1, 1, 1}, 32, 100 << 10), Error);
}

TEST_F(StandIn, AProductIsComputedByAnAlgorithmForItsShapeAlone) {
  cuda::CublasLtGemm gemm(device);
  const auto product = [&](int64_t m, size_t shift) {
    Tensor x(device, DType::bf16, {m * 8 + 8}), weight(device, DType::bf16, {8, 8}),
        out(device, DType::bf16, {m, 8});
    const TensorView shifted{x.view().data + shift, DType::bf16, {m, 8}};
    gemm.multiply(device.stream(), shifted, weight.view(), {}, out.view());
    device.synchronize();
  };
  for (const int64_t m : {3, 5, 3}) EXPECT_NO_THROW(product(m, 0));
  EXPECT_NO_THROW(product(3, 2)) << "an alignment is a part of the shape";
}

// Last: the fault is for good, as on a GPU.
TEST_F(StandIn, AKernelThatFailsMakesEveryLaterCallFail) {
  rehearsal::launch(device.stream(), {1, 1, 1}, 32, 0,
                    [](auto&) { throw emulation::EmulationError("a wild address"); });
  EXPECT_THROW(device.synchronize(), Error);
  EXPECT_THROW(device.free_memory(), Error);
}

}  // namespace
}  // namespace maniple
