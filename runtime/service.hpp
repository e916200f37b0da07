// Rank 0's side of a run: takes requests as there is room, plans the steps of all replicas, turns their
// tokens into completions, and counts.
#pragma once

#include <parallel/collective_counts.hpp>
#include <runtime/completion_builder.hpp>
#include <runtime/control/coordinator.hpp>
#include <runtime/control/rank_activity.hpp>
#include <runtime/request_meter.hpp>
#include <runtime/requests.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>

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
  // Requests by how they ended.
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

class Service {
 public:
  // The references must outlive it. `turns` counts the turns of its loop that have work or a source that
  // makes progress; it is 0 after the end. observer: may be null.
  Service(Coordinator& coordinator, int64_t vocabulary_size, const Tokenizer* tokenizer, CompletionSink& sink,
          std::atomic<uint64_t>& turns, RunObserver* observer = nullptr)
      : coordinator_(coordinator),
        vocabulary_size_(vocabulary_size),
        tokenizer_(tokenizer),
        sink_(sink),
        turns_(turns),
        meter_(observer),
        builder_(tokenizer,
                 [&sink](RequestId request, std::string_view text) { sink.generated(request, text); }) {}

  // Returns when the source has ended and all requests have, or `interrupt` is not zero, or `worker_failed`,
  // after which no result can arrive. In the first two cases it sends the stop command to all ranks. Calls
  // on_progress about twice a second, also when nothing finished.
  RunSummary run(RequestSource& source, const OnProgress& on_progress, const std::atomic<int>& interrupt,
                 const std::atomic<bool>& worker_failed);

 private:
  using Clock = std::chrono::steady_clock;

  void serve(RequestSource& source, const OnProgress& on_progress, const std::atomic<int>& interrupt,
             const std::atomic<bool>& worker_failed);
  void take_requests(RequestSource& source, const std::atomic<int>& interrupt);
  void admit(const GenerationRequest& request);
  void refuse(const GenerationRequest& request, const std::string& reason);
  void take_token(const TokenEvent& event);
  Progress progress();

  Coordinator& coordinator_;
  int64_t vocabulary_size_;
  const Tokenizer* tokenizer_;
  CompletionSink& sink_;
  std::atomic<uint64_t>& turns_;
  RequestMeter meter_;
  CompletionBuilder builder_;
  RunSummary summary_;
  bool source_ended_ = false;  // the source has ended
  // Since the last report:
  Clock::time_point reported_ = Clock::now();
  size_t prompt_tokens_ = 0;
  size_t decoded_tokens_ = 0;
};

}  // namespace maniple
