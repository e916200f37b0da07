// kernels/cuda/device/launch.cpp over stand-ins that write down each call of the runtime.
#include <device/launch.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace maniple {
namespace {

using Calls = std::vector<std::string>;
Calls calls;
int code_of_kernels = 90, driver = 12030;

cudaError_t called(std::string call) {
  calls.push_back(std::move(call));
  return cudaSuccess;
}

}  // namespace
}  // namespace maniple

using namespace maniple;

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
  return called(fmt::format("{} {}",
                            attribute == cudaFuncAttributeMaxDynamicSharedMemorySize ? "shared memory"
                            : attribute == cudaFuncAttributePreferredSharedMemoryCarveout
                                ? "carveout"
                                : "another attribute",
                            value));
}
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 10, cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                          size_t bytes) {
  *blocks = 3;
  return called(fmt::format("blocks of {} threads, {} bytes", threads, bytes));
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver;
  return called("driver");
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  attributes->ptxVersion = code_of_kernels;
  return called("code");
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  const bool early = config->numAttrs == 1 &&
                     config->attrs->id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                     config->attrs->val.programmaticStreamSerializationAllowed == 1;
  const dim3 grid = config->gridDim;
  return called(fmt::format("{}x{}x{} blocks of {} threads, {} bytes{}", grid.x, grid.y, grid.z,
                            config->blockDim.x, config->dynamicSmemBytes,
                            early                  ? ", early"
                            : config->numAttrs > 0 ? ", another attribute"
                                                   : ""));
}
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }

namespace maniple {
namespace {

// What is known of a kernel is kept, so each case has its own.
template <int>
void kernel(int) {}
template <int>
void waiting(device::PreviousKernel) {}

const std::string carveout = fmt::format("carveout {}", static_cast<int>(cudaSharedmemCarveoutMaxShared));

template <int number>
Calls launched(size_t bytes) {
  calls.clear();
  device::launch(kernel<number>, {7, 5, 3}, 64, bytes, nullptr, 1);
  return std::exchange(calls, {});
}
template <int number>
Calls launched_early(int code = 90, int by_driver = 12030) {
  code_of_kernels = code, driver = by_driver;
  calls.clear();
  device::launch_early(waiting<number>, {1}, 32, 0, nullptr);
  return std::exchange(calls, {});
}

TEST(CudaLaunch, ReservesMemoryBeyondTheUsualOnceAndNeverLess) {
  EXPECT_EQ(launched<0>(49152), (Calls{"7x5x3 blocks of 64 threads, 49152 bytes"}));
  EXPECT_EQ(launched<0>(60000),
            (Calls{"shared memory 60000", carveout, "7x5x3 blocks of 64 threads, 60000 bytes"}));
  for (const size_t bytes : {60000, 50000, 0, 60000}) EXPECT_EQ(launched<0>(bytes).size(), 1u) << bytes;
  EXPECT_EQ(launched<0>(70000)[0], "shared memory 70000");
  EXPECT_EQ(launched<1>(60000).size(), 3u) << "another kernel";
}

TEST(CudaLaunch, CountsBlocksOnceAndAfterTheReservation) {
  calls.clear();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(device::resident_blocks(kernel<2>, 64, 60000), 30);
  EXPECT_EQ(calls, (Calls{"shared memory 60000", carveout, "blocks of 64 threads, 60000 bytes"}));
  device::resident_blocks(kernel<2>, 32, 60000);
  device::resident_blocks(kernel<2>, 64, 50000);
  EXPECT_EQ(Calls(calls.begin() + 3, calls.end()),
            (Calls{"blocks of 32 threads, 60000 bytes", "blocks of 64 threads, 50000 bytes"}));
}

TEST(CudaLaunch, StartsEarlyWhereCodeAndDriverKnowIt) {
  const std::string plain = "1x1x1 blocks of 32 threads, 0 bytes", early = plain + ", early";
  EXPECT_EQ(launched_early<0>(), (Calls{"driver", "code", early}));
  EXPECT_EQ(launched_early<0>(), (Calls{early})) << "it is asked once";
  EXPECT_EQ(launched_early<1>(120, 13000).back(), early);
  EXPECT_EQ(launched_early<2>(89, 13000).back(), plain);
  EXPECT_EQ(launched_early<3>(90, 12020).back(), plain);
  EXPECT_EQ(launched_early<3>(90, 12020), (Calls{plain})) << "a no is kept too";
  device::allow_early_starts(false);
  EXPECT_EQ(launched_early<0>(), (Calls{plain}));
  device::allow_early_starts(true);
  EXPECT_EQ(launched_early<0>(), (Calls{early}));
}

TEST(CudaLaunch, OfAnEmptyGridIsNone) {
  calls.clear();
  for (const device::Grid grid : {device::Grid{0, 1, 1}, {1, 0, 1}, {1, 1, 0}})
    device::launch(kernel<3>, grid, 32, 60000, nullptr, 1);
  EXPECT_EQ(calls, Calls{});
}

}  // namespace
}  // namespace maniple
