// A job never hangs silently: a thread on every rank tells rank 0 what the rank is doing; silence or lack of
// progress ends the whole job with one message that names the rank, and so does a fault of a group that only
// its world sees (NCCL's, while the rank waits for its GPU). It works while the rank's other threads are
// stuck.
#pragma once

#include <parallel/world.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace maniple {

enum class Phase : uint8_t { start, load, idle, step, end };

// Where a rank is: written by its worker, read by its health thread.
struct Pulse {
  std::atomic<Phase> phase = Phase::start;
  std::atomic<uint64_t> step = 0;
  std::atomic<uint32_t> layer = 0;
};

struct Deadlines {
  std::chrono::milliseconds beat{2000};
  std::chrono::milliseconds silence{20'000};      // nothing heard from a rank
  std::chrono::milliseconds progress{45'000};     // a step without a new layer
  std::chrono::milliseconds start_up{1'800'000};  // start and load
};

// What rank 0 last heard of a rank.
struct RankHealth {
  Phase phase = Phase::start;
  uint64_t step = 0;
  uint32_t layer = 0;
  std::chrono::steady_clock::time_point heard;
  std::chrono::steady_clock::time_point progressed;
};

class Health {
 public:
  // Collective. Starts the thread; `world` and `pulse` must outlive it. On a fault it prints and calls
  // world.abort.
  Health(World& world, Pulse& pulse, const Deadlines& deadlines = {});
  ~Health();

 private:
  void watch(const std::stop_token& stop);
  void beat();
  void listen();
  void judge();
  void start_deadlines_again();
  [[noreturn]] void accuse(int rank, const std::string& what);
  [[noreturn]] void give_up(const std::string& message);

  World& world_;
  Pulse& pulse_;
  Deadlines deadlines_;
  Channel channel_;
  std::vector<RankHealth> ranks_;  // rank 0: all; elsewhere only rank 0's
  std::jthread thread_;            // last: it uses the others
};

}  // namespace maniple
