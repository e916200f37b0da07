// Rank 0's side of a run: takes requests as there is room, plans the steps of all replicas, turns their
// tokens into completions, and counts.
#pragma once

#include <runtime/completion_builder.hpp>
#include <runtime/control/coordinator.hpp>
#include <runtime/control/rank_activity.hpp>
#include <runtime/request_meter.hpp>
#include <runtime/requests.hpp>
#include <runtime/run_summary.hpp>

#include <atomic>
#include <chrono>
#include <string>

namespace maniple {

class Service {
 public:
  // The references must outlive it. `turns` counts the turns of its loop that have work or a source that
  // makes progress; it is 0 after the end. observer: may be null.
  Service(Coordinator& coordinator, int64_t vocabulary_size, std::span<const int32_t> ends,
          const Tokenizer* tokenizer, CompletionSink& sink, std::atomic<uint64_t>& turns,
          RunObserver* observer = nullptr)
      : coordinator_(coordinator),
        vocabulary_size_(vocabulary_size),
        ends_(ends),
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
  void admit(GenerationRequest request);
  void refuse(const GenerationRequest& request, const std::string& reason);
  void take_token(const TokenEvent& event);
  Progress progress();

  Coordinator& coordinator_;
  int64_t vocabulary_size_;
  std::span<const int32_t> ends_;
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
