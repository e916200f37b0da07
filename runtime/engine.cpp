#include <kernels/support/host_memory.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/engine.hpp>
#include <runtime/expert_load.hpp>

#include <sys/resource.h>

#include <exception>
#include <thread>
#include <utility>

namespace maniple {
namespace {

uint64_t peak_resident_bytes() {
  struct rusage usage {};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<uint64_t>(usage.ru_maxrss) << 10 : 0;
}

std::vector<CollectiveUse> uses_of(const std::map<GroupAxis, CollectiveCounts>& counts) {
  std::vector<CollectiveUse> uses;
  for (const auto& [axis, by_op] : counts)
    for (uint32_t op = 0; op < collective_op_names.size(); ++op)
      for (uint32_t size = 0; size < CollectiveCounts::num_sizes; ++size)
        if (const CollectiveCount& count = by_op.by_op[op][size]; count.calls > 0)
          uses.push_back({static_cast<uint32_t>(axis), op, size, count});
  return uses;
}

// By rank.
template <typename Item>
std::vector<std::vector<Item>> gather_lists(World& world, const std::vector<Item>& mine) {
  const std::string_view bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Item));
  std::vector<std::vector<Item>> lists;
  for (const std::string& of_rank : world.all_gather_bytes(bytes)) {
    std::vector<Item>& list = lists.emplace_back(of_rank.size() / sizeof(Item));
    of_rank.copy(reinterpret_cast<char*>(list.data()), of_rank.size());
  }
  return lists;
}

}  // namespace

Engine::Engine(World& world, const EngineOptions& options, const JobPlan& plan, const SharedModel& model,
               Backend backend, RankActivity& activity)
    : world_(world),
      options_(options),
      plan_(plan),
      activity_(activity),
      model_(world, options, plan, model, std::move(backend), activity) {}

SchedulerConfig Engine::scheduler_config() const {
  SchedulerConfig scheduler;
  scheduler.max_num_seqs = options_.max_num_seqs;
  scheduler.max_num_batched_tokens = plan_.step_tokens;
  scheduler.max_rows = plan_.max_rows;
  scheduler.max_model_len = plan_.max_model_len;
  scheduler.block_size = plan_.block_tokens;
  scheduler.window = plan_.window;
  scheduler.prefix_cache = options_.prefix_cache;
  scheduler.eos_token_ids = model_.stop_token_ids();
  scheduler.policy = options_.schedule;
  scheduler.steps_in_flight = plan_.steps_in_flight;
  scheduler.tokens_in_plan = plan_.grid.pipeline > 1;
  return scheduler;
}

RunSummary Engine::run(RequestSource& source, CompletionSink& sink, const OnProgress& on_progress,
                       const std::atomic<int>& interrupt, RunObserver* observer) {
  RunSummary summary;
  std::optional<Error> failure;
  std::atomic<bool> worker_failed = false;
  Coordinator coordinator(model_.root(), plan_.grid, scheduler_config(), model_.blocks_of_replicas(),
                          observer);
  std::jthread service([&] {
    try {
      summary = Service(coordinator, model_.config().vocab_size, model_.stop_token_ids(), model_.tokenizer(),
                        sink, activity_.turns, observer)
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
  gather(times, summary);
  if (failure) throw CollectiveError(*failure);
  return summary;
}

RankTimes Engine::run_worker() {
  RunSummary summary;
  gather(model_.work(), summary);
  return summary.ranks[static_cast<size_t>(world_.rank())];
}

void Engine::gather(const WorkerTimes& times, RunSummary& summary) {
  activity_.phase = Phase::end;
  const EngineInfo& info = model_.info();
  summary.ranks = gather_values(world_, RankTimes{info.load_seconds, times.prefill, times.decode,
                                                  model_.communication_seconds(), times.idle});
  summary.memory =
      gather_values(world_, RankMemory{activity_.steps, info.weight_bytes, info.kv_bytes, info.scratch_bytes,
                                       peak_resident_bytes(), info.fitting_blocks});
  const std::vector<std::vector<int32_t>> counts = gather_lists(world_, model_.expert_counts());
  collective_phase(world_, [&] { summary.experts = expert_load(plan_, model_.config(), counts); });
  summary.collectives = gather_lists(world_, uses_of(model_.collectives()));
}

}  // namespace maniple
