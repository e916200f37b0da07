// All-reduce through shared memory against messages, in turns in one run. As in a layer, where a product has
// just written it, x is written before each sum (not timed):
//   mpirun --oversubscribe --bind-to none -n 2 build/bench/sum_bench
//   mpirun --oversubscribe --bind-to none -n 4 build/bench/sum_bench
#include <kernels/factory/make_backend.hpp>
#include <parallel/mpi/mpi_world.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace maniple {
namespace {

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

double seconds_a_call(Communicator& group, TensorView x, int calls) {
  std::chrono::duration<double> taken{};
  for (int call = 0; call < calls; ++call) {
    std::fill_n(x.as<float>(), x.shape.elements(), 1.0f);
    const auto start = std::chrono::steady_clock::now();
    group.all_reduce(x);
    taken += std::chrono::steady_clock::now() - start;
  }
  return taken.count() / calls;
}

void run() {
  constexpr int rounds = 41;
  const auto world = make_mpi_world([](int code) { std::_Exit(code); });
  const Backend backend = make_backend({.kind = BackendKind::cpu});
  std::vector<int> everyone(static_cast<size_t>(world->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto messages = world->make_group(everyone, *backend.ops, AllReduce::messages),
             shared = world->make_group(everyone, *backend.ops, AllReduce::shared),
             chosen = world->make_group(everyone, *backend.ops, AllReduce::automatic);
  if (world->rank() == 0)
    fmt::print(
        "{} ranks; auto: {}\n\n| KiB | messages us | shared us | auto us | messages / shared "
        "|\n|--:|--:|--:|--:|--:|\n",
        world->size(), chosen->sums());
  for (int64_t bytes = 4 << 10; bytes <= 16 << 20; bytes *= 4) {
    Tensor x(*backend.device, DType::fp32, {bytes / 4});
    const auto calls = static_cast<int>(std::max<int64_t>(1, (256 << 10) / bytes));
    std::vector<double> by_messages, by_memory, by_choice;
    for (int round = 0; round < rounds; ++round) {
      by_messages.push_back(seconds_a_call(*messages, x, calls) * 1e6);
      by_memory.push_back(seconds_a_call(*shared, x, calls) * 1e6);
      by_choice.push_back(seconds_a_call(*chosen, x, calls) * 1e6);
    }
    if (world->rank() == 0)
      fmt::print("| {} | {:.1f} | {:.1f} | {:.1f} | {:.2f} |\n", bytes >> 10, median(by_messages),
                 median(by_memory), median(by_choice), median(by_messages) / median(by_memory));
  }
  world->barrier();
}

}  // namespace
}  // namespace maniple

int main() { maniple::run(); }
