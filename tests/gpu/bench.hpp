// Times captured calls, in turns with nothing else, and reports them against the rate at which this device reads.
#pragma once

#include <gpu/bench_kernels.hpp>
#include <kernels/cuda/cuda_device.hpp>
#include <kernels/cuda/device/cuda_check.hpp>
#include <kernels/tensor/tensor.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace maniple::bench {

// KERNEL_BENCH_SHRINK=N divides all sizes by N, to test the program itself.
template <typename Integer>
Integer shrunk(Integer size) {
  static const char* const wish = std::getenv("KERNEL_BENCH_SHRINK");
  static const int divisor = wish ? std::atoi(wish) : 1;
  return std::max<Integer>(size / static_cast<Integer>(divisor), 1);
}

inline int64_t cold_bytes() { return shrunk(int64_t{512} << 20); }  // beyond any L2 cache

struct Timing {
  double median, tenth, ninetieth;  // microseconds per call
};

inline Timing timing_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto share = [&](size_t percent) { return times[times.size() * percent / 100]; };
  return {share(50), share(10), share(90)};
}

class Bench {
 public:
  // call(i) joins the stream; i counts the calls, to take turns among operands.
  cudaGraph_t graph_of(int calls, const std::function<void(int)>& call) {
    for (int i = 0; i < calls; ++i) call(i);
    device_.synchronize();
    cudaGraph_t graph;
    cuda::check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "beginning a capture");
    for (int i = 0; i < calls; ++i) call(i);
    cuda::check(cudaStreamEndCapture(stream(), &graph), "ending a capture");
    return graph;
  }
  Timing time(int calls, const std::function<void(int)>& call) {
    const cudaGraph_t graph = graph_of(calls, call);
    cudaGraphExec_t captured;
    cuda::check(cudaGraphInstantiate(&captured, graph, 0), "making a graph");
    cudaEvent_t begin, end;
    cuda::check(cudaEventCreate(&begin), "creating an event");
    cuda::check(cudaEventCreate(&end), "creating an event");
    std::vector<double> times;
    const int rounds = shrunk(31), warm_ups = shrunk(3);
    for (int round = -warm_ups; round < rounds; ++round) {
      float milliseconds = 0;
      cuda::check(cudaEventRecord(begin, stream()), "recording an event");
      cuda::check(cudaGraphLaunch(captured, stream()), "launching a graph");
      cuda::check(cudaEventRecord(end, stream()), "recording an event");
      cuda::check(cudaEventSynchronize(end), "running a graph");
      cuda::check(cudaEventElapsedTime(&milliseconds, begin, end), "reading a time");
      if (round >= 0) times.push_back(1000.0 * static_cast<double>(milliseconds) / calls);
    }
    cudaEventDestroy(begin), cudaEventDestroy(end), cudaGraphExecDestroy(captured), cudaGraphDestroy(graph);
    return timing_of(std::move(times));
  }

  // Bytes and FLOPs are those of one call; 0 leaves them out.
  void report(const std::string& what, const Timing& timing, double bytes, double flops = 0) const {
    std::string rates;
    if (bytes > 0)
      rates += fmt::format(R"(, "gb_s": {:.0f}, "percent_of_read": {:.1f})", bytes / timing.median / 1e3,
                           100 * bytes / timing.median / 1e3 / read_gb_s_);
    if (flops > 0) rates += fmt::format(R"(, "tflop_s": {:.1f})", flops / timing.median / 1e6);
    fmt::print("{{{}, \"us\": {:.2f}, \"p10\": {:.2f}, \"p90\": {:.2f}{}}}\n", what, timing.median,
               timing.tenth, timing.ninetieth, rates);
    std::fflush(stdout);
  }

  void measure_reading() {
    const int64_t bytes = shrunk(int64_t{8} << 30);
    Tensor data(device_, DType::uint8, {bytes}), sink(device_, DType::int32, {1});
    const Timing timing = time(1, [&](int) {
      read_all(stream(), data.view().data, bytes, reinterpret_cast<uint32_t*>(sink.view().data));
    });
    read_gb_s_ = static_cast<double>(bytes) / timing.median / 1e3;
    report(fmt::format(R"("kernel": "read_all", "bytes": {})", bytes), timing, static_cast<double>(bytes));
  }

  Tensor random(int64_t count, uint32_t seed) {
    Tensor values(device_, DType::bf16, {(count + 7) / 8 * 8});
    fill_random(stream(), values.view().data, values.shape().elements(), seed);
    return values;
  }
  Tensor ints(const std::vector<int32_t>& values) {
    Tensor tensor(device_, DType::int32, {static_cast<int64_t>(values.size())});
    device_.upload(tensor.view().data, reinterpret_cast<const std::byte*>(values.data()), 4 * values.size());
    return tensor;
  }

  cuda::CudaDevice& device() { return device_; }
  device::Stream stream() { return device_.stream(); }

 private:
  cuda::CudaDevice device_{0};
  double read_gb_s_ = 0;
};

}  // namespace maniple::bench
