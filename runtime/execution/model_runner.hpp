// Runs step plans on one rank: mirrors the running sequences, runs the model, samples.
#pragma once

#include <layers/models/model.hpp>
#include <layers/sampler.hpp>
#include <runtime/execution/batch_builder.hpp>
#include <runtime/execution/kv_cache.hpp>
#include <runtime/scheduling/sequence_table.hpp>
#include <runtime/scheduling/step_runner.hpp>

#include <atomic>
#include <chrono>
#include <deque>
#include <map>

namespace maniple {

struct RunnerLimits {
  uint32_t max_num_seqs = 0;
  uint32_t step_tokens = 0;
  uint32_t max_model_len = 0;
  uint32_t block_size = 0;  // tokens of a page
  ContextShare context = {};
  uint32_t max_rows = 0;          // of logits in a step, if more than max_num_seqs
  uint32_t window = 0;            // tokens that layers of a pool of their own see; 0: there are none
  uint64_t tokens_in_flight = 0;  // of all steps, where there are such layers

  WindowPool windows(uint32_t num_blocks) const {
    return WindowPool::of(window, block_tokens(), max_num_seqs, tokens_in_flight, num_blocks);
  }
  // A block has a page on each owner.
  uint32_t block_tokens() const { return block_size * static_cast<uint32_t>(context.owners); }
  BatchLimits batch() const;
};

// Runs the largest step without memory or computation. Prepares its products; returns the scratch memory that it takes.
Workspace::Sizes dry_run(Model& model, const RankPlan& plan, Ops& ops, const RunnerLimits& limits,
                         DType activation, const ModelConfig& config);

// The sizes of a runner.
struct RunnerSizes {
  RunnerLimits limits;
  KvGeometry kv;
  std::vector<KvScales> kv_scales = {};  // by layer; empty: 1
  uint32_t num_blocks = 0;
  Workspace::Sizes scratch = {};  // from dry_run
  DType activation = DType::bf16;
  int64_t vocabulary_size = 0;
  int64_t hidden_size = 0;
  bool tokens_in_plan = false;  // a plan that leaves a token out is refused

  // samples: the rank has the head.
  BatchLimits batch(bool samples) const;
};

// The batch sizes of captured decode steps: 1, 2, 4, then in steps that grow from 4 to 32; the last is
// `most`. A decode step is padded to the next of them.
std::vector<size_t> decode_buckets(size_t most);

class ModelRunner final : public StepRunner {
 public:
  // Collective over the tensor group. The references must outlive the runner. `layer` shows the layer in progress.
  ModelRunner(Model& model, Ops& ops, const Groups& groups, const RunnerSizes& sizes,
              std::atomic<uint32_t>& layer);

  // The largest decode step without a sequence, a step of so many tokens if that is more, through all stages, and what the tensor group
  // does besides sums. Collective over all ranks of a replica. Libraries load code and connect ranks at first use of a size, and take
  // memory for it.
  void warm_up(size_t tokens);
  // Captures the decode step of each bucket. Collective, before the first plan. Device and groups
  // must support capture.
  void capture_decodes();
  size_t num_graphs() const { return graphs_.size(); }

  void launch(const StepPlan& plan) override;
  bool ready() const override { return launched_.front().rows.ready(); }
  StepResult collect() override;
  // The calls of the groups so far, those of captured graphs counted by their replays.
  std::map<GroupAxis, CollectiveCounts> collectives() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Launched {
    uint64_t number = 0;
    std::vector<uint32_t> counts;
    PendingRows rows;
    Clock::time_point began = Clock::now();
    StepTimes times;
  };

  // A decode step between its stage's input and output.
  struct DecodeGraph {
    std::unique_ptr<Graph> graph;
    TensorView input, out;
    std::span<const Candidate> drawn;  // of logits
    size_t workspace;                  // bytes that the graph uses
    std::map<GroupAxis, CollectiveCounts> calls;
    int64_t replays = 0;
  };

  StepTimes times_of(const Launched& step);
  // For a batch of builder_ without sequences.
  TensorView idle_input(size_t rows);
  // Logits, or on a stage that is not the last the residual stream, which the next stage gets. A stage that is not the first
  // takes its input from the link.
  TensorView forward(const StepBatch& batch, const StageStep& step);
  TensorView replay(DecodeGraph& decode, const StageStep& step, int64_t rows);

  size_t max_num_seqs_;
  int64_t hidden_size_;
  Model& model_;
  SequenceTable table_;
  BatchBuilder builder_;
  KvCache cache_;
  Sampler sampler_;
  Workspace workspace_;
  ForwardContext context_;
  std::deque<Launched> launched_;
  Clock::time_point collected_;           // when the last result was
  std::map<size_t, DecodeGraph> graphs_;  // by bucket
};

}  // namespace maniple
