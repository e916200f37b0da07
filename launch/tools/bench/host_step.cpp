#include <launch/tools/bench/host_step.hpp>
#include <runtime/control/worker.hpp>
#include <runtime/execution/batch_builder.hpp>
#include <runtime/service.hpp>

#include <deque>
#include <exception>
#include <thread>

namespace maniple {
namespace {

constexpr uint32_t block_size = 256, most_steps = 1024;

uint32_t blocks_of(uint32_t sequences) { return sequences * (most_steps / block_size + 1); }

SchedulerConfig scheduler_config(uint32_t sequences) {
  SchedulerConfig config;
  config.max_num_seqs = config.max_num_batched_tokens = sequences;
  config.max_model_len = most_steps + block_size;
  config.block_size = block_size;
  config.prefix_cache = false;
  return config;
}

// Requests of one token each, that all decode at once.
class Requests final : public RequestSource, public CompletionSink {
 public:
  Requests(uint32_t count, uint32_t tokens) : count_(count), tokens_(tokens) {}
  std::optional<GenerationRequest> next() override {
    if (given_ == count_) return std::nullopt;
    GenerationRequest request;
    request.id = given_++;
    request.prompt = {0};
    request.sampling.temperature = 0;
    request.sampling.max_tokens = tokens_;
    request.sampling.ignore_eos = true;
    return request;
  }
  void finished(FinishedRequest completion) override {
    require(completion.answers[0].tokens.size() == tokens_, "a request without a model has all its tokens");
  }

 private:
  const uint32_t count_, tokens_;
  uint32_t given_ = 0;
};

// The steps in which every sequence of a replica decodes.
class FullSteps final : public RunObserver {
 public:
  explicit FullSteps(uint32_t sequences) : sequences_(sequences) {}
  void step(const StepRow& row) override {
    if (row.sequences != sequences_ || row.context == 0 || row.replica != 0) return;
    if (steps_++ == 0) first_ = row.planned_s;
    last_ = row.planned_s;
  }
  void request(const RequestRow& /*row*/) override {}
  double mean() const {
    require(steps_ > 1, "sequences decode together");
    return (last_ - first_) / static_cast<double>(steps_ - 1);
  }

 private:
  const uint32_t sequences_;
  size_t steps_ = 0;
  double first_ = 0, last_ = 0;
};

// What a rank does with a plan, but for the model.
class WithoutModel final : public StepRunner {
 public:
  WithoutModel(Ops& ops, uint32_t sequences)
      : table_(sequences, blocks_of(sequences), block_size),
        builder_(ops, {sequences, sequences, most_steps / block_size + 1, block_size}) {}

  void launch(const StepPlan& plan) override {
    const std::span<const SequenceView> sequences = table_.apply(plan);
    StepResult& result = results_.emplace_back();
    result.step = plan.step;
    for (const SequenceView& sequence : sequences) result.counts.push_back(sequence.rows_sampled);
    if (sequences.empty()) return;
    builder_.build(sequences);
    result.tokens.resize(builder_.sampler_batch().rows.size());
  }

  bool ready() const override { return true; }
  StepResult collect() override {
    StepResult result = std::move(results_.front());
    results_.pop_front();
    return result;
  }

 private:
  SequenceTable table_;
  BatchBuilder builder_;
  std::deque<StepResult> results_;
};

}  // namespace

HostStep::HostStep(World& world, int tensor_size, Ops& ops, RankActivity& activity)
    : world_(world),
      tensor_size_(tensor_size),
      ops_(ops),
      activity_(activity),
      channel_(world.make_channel()) {}

double HostStep::seconds(uint32_t sequences, uint32_t steps) {
  double seconds = 0;
  if (world_.rank() != 0) {
    work(sequences);
  } else {
    std::exception_ptr failure;
    std::atomic<bool> worker_failed = false;
    std::jthread service([&] {
      try {
        seconds = serve(sequences, steps, worker_failed);
      } catch (...) {
        failure = std::current_exception();
      }
    });
    try {
      work(sequences);
    } catch (...) {
      worker_failed = true;
      throw;
    }
    service.join();
    if (failure) std::rethrow_exception(failure);
  }
  activity_.phase = Phase::step;  // as the other parts are watched
  return seconds;
}

double HostStep::serve(uint32_t sequences, uint32_t steps, const std::atomic<bool>& worker_failed) {
  const int replicas = world_.size() / tensor_size_;
  Requests requests(sequences * static_cast<uint32_t>(replicas), std::min(steps, most_steps) + 2);
  FullSteps full(sequences);
  Coordinator coordinator(*channel_.root, {.tensor = tensor_size_, .pipeline = 1, .data = replicas},
                          scheduler_config(sequences),
                          std::vector<uint32_t>(static_cast<size_t>(replicas), blocks_of(sequences)), &full);
  Service service(coordinator, 1, {}, nullptr, requests, activity_.turns, &full);
  const std::atomic<int> never = 0;
  service.run(
      requests, [](const Progress&) {}, never, worker_failed);
  return full.mean();
}

void HostStep::work(uint32_t sequences) {
  WithoutModel rank(ops_, sequences);
  run_worker_loop(*channel_.leaf, world_.rank() % tensor_size_ == 0, rank, activity_);
}

}  // namespace maniple
