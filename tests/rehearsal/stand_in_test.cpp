// The stand-ins report the errors that the libraries would report, or would punish silently.
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
  EXPECT_EQ(here[0], std::byte{0xff});
}

TEST_F(StandIn, AnEventIsPassedNotBeforeItsPlace) {
  ASSERT_EQ(cudaMemcpyAsync(here, there, bytes, cudaMemcpyDeviceToHost, device.stream()), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(pinned.copied.get(), device.stream()), cudaSuccess);
  std::memset(here, 1, bytes);
  EXPECT_EQ(cudaEventQuery(pinned.copied.get()), cudaErrorNotReady);
  EXPECT_EQ(here[0], std::byte{1});
  EXPECT_EQ(cudaEventQuery(pinned.copied.get()), cudaSuccess);
  EXPECT_EQ(here[0], std::byte{0xff});
}

TEST_F(StandIn, WhoAsksForAnEventWaitsForNobody) {
  bool there_is_a_peer = false;
  int runs = 0;
  rehearsal::enqueue(device.stream(), {[&](auto&) { ++runs; }});
  rehearsal::enqueue(device.stream(), {[&](auto&) { ++runs; }, [&] { return there_is_a_peer; }});
  ASSERT_EQ(cudaEventRecord(pinned.copied.get(), device.stream()), cudaSuccess);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaEventQuery(pinned.copied.get()), cudaErrorNotReady);
  EXPECT_EQ(runs, 1);
  there_is_a_peer = true;
  EXPECT_EQ(cudaEventQuery(pinned.copied.get()), cudaSuccess);
  EXPECT_EQ(runs, 2);
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
  const int late = rehearsal::late_uploads;
  const auto graph = device.capture([&] { rehearsal::enqueue(device.stream(), {[&](auto&) { ++runs; }}); });
  device.synchronize();
  EXPECT_EQ(runs, 0);
  for (int i = 0; i < 2; ++i) graph->replay();
  device.synchronize();
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(rehearsal::late_uploads, late) << "a first launch that has to send the graph stops a step";
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

struct ProductTest : StandIn {
  static constexpr int64_t most = 24, n = 8, k = 8;
  cuda::CublasLtGemm gemm{device};
  Tensor x{device, DType::bf16, {most * k + k}}, weight{device, DType::bf16, {n, k}},
      out{device, DType::bf16, {most, n}};
  TensorView rows_of_x(int64_t m, size_t shift) { return {x.view().data + shift, DType::bf16, {m, k}}; }
  TensorView rows_of_out(int64_t m) { return {out.view().data, DType::bf16, {m, n}}; }
  int chosen_by_product(int64_t m, size_t shift = 0) {
    const int before = rehearsal::algorithms_chosen;
    gemm.multiply(device.stream(), rows_of_x(m, shift), weight.view(), {}, rows_of_out(m));
    device.synchronize();
    return rehearsal::algorithms_chosen - before;
  }
};

TEST_F(ProductTest, AnAlgorithmIsChosenOnceForRowsAHalfOctaveApart) {
  EXPECT_EQ(chosen_by_product(17), 1);
  for (const int64_t m : {18, 20, 24, 17}) EXPECT_EQ(chosen_by_product(m), 0) << m;
  EXPECT_EQ(chosen_by_product(16), 1);
  EXPECT_EQ(chosen_by_product(17, 2), 1) << "an alignment is a part of the shape";
}

TEST_F(ProductTest, OneThatRefusesTheRowsIsReplaced) {
  EXPECT_EQ(chosen_by_product(24), 1);
  EXPECT_EQ(chosen_by_product(21), 1);
  EXPECT_EQ(chosen_by_product(21), 0);
}

TEST_F(ProductTest, NothingIsChosenAfterThePreparation) {
  gemm.prepare({nullptr, DType::bf16, {most, k}}, weight.view(), {}, {nullptr, DType::bf16, {most, n}});
  for (const int64_t m : {1, 2, 3, 7, 10, 15, 20, 23, 24}) EXPECT_EQ(chosen_by_product(m), 0) << m;
}

// Runs last: the fault is permanent, as on a GPU.
struct FaultTest : StandIn {};
TEST_F(FaultTest, AKernelThatFailsMakesEveryLaterCallFail) {
  rehearsal::launch(device.stream(), {1, 1, 1}, 32, 0,
                    [](auto&) { throw emulation::EmulationError("a wild address"); });
  EXPECT_THROW(device.synchronize(), Error);
  EXPECT_THROW(device.free_memory(), Error);
}

}  // namespace
}  // namespace maniple
