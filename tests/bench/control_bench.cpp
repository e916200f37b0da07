// The cost of start-up agreement and control messages for rank 0, by the number of ranks:
//   mpirun --oversubscribe --bind-to none -n 64 build/bench/tests/bench/control_bench
// A round is one message, or a burst of them, to every other rank, and an answer from each.
#include <parallel/mpi/mpi_world.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace maniple {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Median wall time, and mean CPU time of rank 0's thread, of `rounds` calls.
void measure(World& world, const std::string& what, int rounds, auto round) {
  std::vector<double> wall;
  double cpu = 0;
  for (int i = 0; i < rounds; ++i) {
    world.barrier();
    const Clock::time_point start = Clock::now();
    const double cpu_start = cpu_seconds();
    round();
    cpu += cpu_seconds() - cpu_start;
    wall.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::ranges::nth_element(wall, wall.begin() + rounds / 2);
  if (world.rank() == 0)
    fmt::print("| {} | {:.2f} | {:.2f} |\n", what, wall[static_cast<size_t>(rounds / 2)] * 1e3,
               cpu / rounds * 1e3);
}

void serve(Channel& channel, const World& world, int burst, size_t size) {
  const std::vector<std::byte> bytes(size), answer(64);
  if (!channel.root) {
    for (int received = 0; received < burst;) {
      Backoff backoff(Backoff::Spin::no);
      while (!channel.leaf->try_receive()) backoff.pause();
      while (!channel.leaf->try_send(0, answer)) backoff.pause();
      ++received;
    }
    while (!channel.leaf->flushed()) std::this_thread::yield();
    return;
  }
  int awaited = burst * (world.size() - 1);
  Backoff backoff(Backoff::Spin::no);
  const auto receive = [&] {
    if (!channel.root->try_receive()) return backoff.pause();
    --awaited;
    backoff.reset();
  };
  for (int i = 0; i < burst; ++i)
    for (int rank = 1; rank < world.size(); ++rank)
      while (!channel.root->try_send(rank, bytes)) receive();
  while (awaited > 0) receive();
  while (!channel.root->flushed()) std::this_thread::yield();
}

}  // namespace
}  // namespace maniple

int main() {
  using namespace maniple;
  const std::unique_ptr<World> world = make_mpi_world(std::_Exit);
  Channel channel = world->make_channel();
  if (world->rank() == 0)
    fmt::print("| {} ranks | ms, median | ms of CPU on rank 0 |\n|---|---|---|\n", world->size());
  for (const size_t size : {64, 4096, 65536})
    measure(*world, fmt::format("all_gather_bytes, {} bytes a rank", size), 20, [&] {
      world->all_gather_bytes(std::string(size, '\0'));
      world->barrier();  // until the last rank has received it
    });
  for (const int burst : {1, 32})
    for (const size_t size : {256, 16384})
      measure(*world, fmt::format("{} messages of {} bytes to each rank", burst, size), 20,
              [&] { serve(channel, *world, burst, size); });
}
