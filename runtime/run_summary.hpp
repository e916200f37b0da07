// What a run of requests was, and how it stands.
#pragma once

#include <parallel/collective_counts.hpp>
#include <runtime/control/coordinator.hpp>
#include <runtime/request_meter.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace maniple {

// Where a rank's time went, in seconds.
struct RankTimes {
  double load = 0;
  double prefill = 0;
  double decode = 0;
  double communication = 0;  // within prefill and decode: in collectives of the tensor group, waits included
  double idle = 0;           // waiting for plans
};

struct RankMemory {
  uint64_t steps = 0;
  uint64_t weights = 0, kv = 0, scratch = 0;  // bytes
  uint64_t resident_peak = 0;                 // bytes of host memory of the process
  uint64_t fitting_blocks = 0;                // KV blocks that its memory has room for
};

// Calls of one operation in one of the rank's groups, of one class of sizes (CollectiveCounts).
struct CollectiveUse {
  uint32_t axis = 0;  // GroupAxis
  uint32_t op = 0;    // CollectiveOp
  uint32_t log2_bytes = 0;
  CollectiveCount count;
};

// How evenly the tokens of a run fell on the experts of a sparse layer.
struct ExpertLoad {
  int64_t layer = 0;     // of the model
  double hottest = 0;    // share of all choices that fell on the expert with the most
  double imbalance = 0;  // the most of an expert, divided by the mean
  int64_t unused = 0;    // experts that no token chose
};

struct RunSummary : RequestCounts {
  size_t requests = 0;
  size_t failed = 0;
  size_t prompt_tokens = 0;
  size_t completion_tokens = 0;
  // Answers by how they ended.
  size_t stopped = 0;
  size_t reached_length = 0;
  double seconds = 0;
  bool interrupted = false;
  std::vector<RankTimes> ranks;
  // By rank, as above.
  std::vector<RankMemory> memory;
  std::vector<std::vector<CollectiveUse>> collectives;
  std::vector<ExpertLoad> experts;  // by sparse layer
};

struct Progress {
  size_t finished = 0;
  size_t failed = 0;
  size_t running = 0;
  size_t waiting = 0;
  double prefill_tokens_per_second = 0;  // since the last report
  double decode_tokens_per_second = 0;
  size_t completion_tokens = 0;
  std::optional<Stall> stall;
};
using OnProgress = std::function<void(const Progress&)>;

}  // namespace maniple
