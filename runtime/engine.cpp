#include <kernels/support/host_memory.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/engine.hpp>

#include <exception>
#include <thread>

namespace maniple {

Engine::Engine(World& world, const EngineOptions& options, const JobPlan& plan, SharedModel model,
               RankActivity& activity)
    : world_(world),
      options_(options),
      plan_(plan),
      activity_(activity),
      model_(world, options, plan, std::move(model), activity) {}

SchedulerConfig Engine::scheduler_config() const {
  SchedulerConfig scheduler;
  scheduler.max_num_seqs = options_.max_num_seqs;
  scheduler.max_num_batched_tokens = options_.max_num_batched_tokens;
  scheduler.max_model_len = plan_.max_model_len;
  scheduler.block_size = options_.block_size;
  scheduler.prefix_cache = options_.prefix_cache;
  scheduler.eos_token_ids = model_.stop_token_ids();
  scheduler.policy = options_.schedule;
  scheduler.steps_in_flight = plan_.steps_in_flight;
  return scheduler;
}

RunSummary Engine::run(RequestSource& source, CompletionSink& sink, const OnProgress& on_progress,
                       const std::atomic<int>& interrupt) {
  RunSummary summary;
  std::optional<Error> failure;
  std::atomic<bool> worker_failed = false;
  Coordinator coordinator(model_.root(), plan_.grid, scheduler_config(), model_.blocks_of_replicas());
  std::jthread service([&] {
    try {
      summary = Service(coordinator, model_.config().vocab_size, model_.tokenizer(), sink, activity_.turns)
                    .run(source, on_progress, interrupt, worker_failed);
    } catch (const Error& error) {
      failure = error;
    } catch (const std::bad_alloc&) {
      failure = out_of_memory();
    } catch (const std::exception& error) {
      failure = Error(ExitCode::internal, error.what());
    }
  });
  WorkerTimes times;
  try {
    times = model_.work();
  } catch (...) {
    worker_failed = true;
    throw;
  }
  service.join();
  const std::vector<RankTimes> ranks = gather_times(times);
  if (failure) throw CollectiveError(*failure);
  summary.ranks = ranks;
  return summary;
}

RankTimes Engine::run_worker() { return gather_times(model_.work())[static_cast<size_t>(world_.rank())]; }

std::vector<RankTimes> Engine::gather_times(const WorkerTimes& times) {
  activity_.phase = Phase::end;
  return gather_values(world_, RankTimes{model_.info().load_seconds, times.prefill, times.decode,
                                         model_.communication_seconds(), times.idle});
}

}  // namespace maniple
