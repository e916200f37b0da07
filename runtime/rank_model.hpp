// What every rank owns: its groups, its part of the weights, its share of the KV cache, and the
// runner that runs the plans of rank 0.
#pragma once

#include <kernels/backend.hpp>
#include <layers/models/model.hpp>
#include <parallel/groups.hpp>
#include <parallel/world.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <runtime/control/rank_activity.hpp>
#include <runtime/control/worker.hpp>
#include <runtime/execution/model_runner.hpp>
#include <runtime/job_plan.hpp>
#include <runtime/shared_model.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

// What the banner and the record of a run show, besides the plan.
struct EngineInfo {
  std::string architecture;
  std::string backend;            // "cpu, 2 threads, avx512_bf16"
  std::vector<std::string> gpus;  // UUIDs by rank; "" without a GPU
  std::string sums;               // over the ranks of a tensor group: "messages"; empty if there are none
  std::string attention;          // "tensor cores"; empty if `backend` implies it
  std::string experts;            // experts_text of the model
  std::string latent;             // latent_text of the model
  bool kv_scales = false;         // of the checkpoint; without them an FP8 KV cache has scale 1
  std::string quantisation;       // "gptq 4 bit, groups of 128"; empty: none
  std::string left_out;           // of the checkpoint: tensors of other parts than the language model
  uint32_t num_blocks = 0;        // the smallest count of any rank
  uint32_t window_blocks = 0;     // beside these, of layers with a window
  size_t weight_bytes = 0;        // of this rank, as the three below
  size_t kv_bytes = 0;
  size_t scratch_bytes = 0;
  uint32_t fitting_blocks = 0;  // that its memory has room for
  double load_seconds = 0;
  uint64_t bytes_read = 0;  // of the weight files, by this rank
  size_t num_graphs = 0;    // of decode steps, by batch size
  double capture_seconds = 0;
};

class RankModel {
 public:
  // Collective. If any rank fails, all throw CollectiveError or SilentExit (runtime/collective_phase.hpp).
  // The references must outlive it.
  RankModel(World& world, const EngineOptions& options, const JobPlan& plan, const SharedModel& model,
            Backend backend, RankActivity& activity);
  ~RankModel();

  const EngineInfo& info() const { return info_; }
  const ModelConfig& config() const { return shared_.config; }
  const std::vector<std::string>& warnings() const { return warnings_; }  // rank 0: of the model's files
  const GenerationConfig& generation_config() const { return generation_config_; }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }  // rank 0
  const std::vector<int32_t>& stop_token_ids() const { return stop_token_ids_; }      // rank 0
  const std::vector<uint32_t>& blocks_of_replicas() const { return blocks_of_replicas_; }
  Mailbox& root() { return *channel_.root; }  // rank 0

  // Runs plans until rank 0 sends the stop command.
  WorkerTimes work();
  // [own sparse layers, experts]: tokens that chose each, in all steps so far.
  std::vector<int32_t> expert_counts() const;
  double communication_seconds() const { return groups_.seconds(); }
  std::map<GroupAxis, CollectiveCounts> collectives() const { return runner_->collectives(); }

 private:
  const KvGeometry& kv() const { return plan_.needs_of(world_.rank()).kv; }
  void read_tokenizer();
  void note_tokens_without_row();
  void join_groups();
  void load();
  void load_checkpoint();
  void note_not_finite(const std::map<std::string, uint64_t>& mine);
  std::unique_ptr<Communicator> make_nccl_data_group();
  std::vector<ReadRound> plan_of_reads(const WeightIndex& index, const Readers& readers) const;
  bool captures_graphs() const;
  size_t bytes_of_graphs() const;
  size_t ranks_with_my_memory() const;
  void size_kv_cache();
  uint32_t affordable_blocks(size_t may_take) const;
  size_t memory_for_cache(size_t beside, const KvBlocks& held) const;
  void capture_graphs();

  // In order of construction: each may depend on those above.
  World& world_;
  const EngineOptions& options_;
  const JobPlan& plan_;
  const RankPlan rank_;
  RankActivity& activity_;
  EngineInfo info_;
  const SharedModel& shared_;
  std::vector<std::string> warnings_;
  GenerationConfig generation_config_;
  std::optional<Tokenizer> tokenizer_;
  std::vector<int32_t> stop_token_ids_;
  RunnerLimits limits_;
  Backend backend_;
  Groups groups_;
  std::unique_ptr<Model> model_;
  std::vector<KvScales> kv_scales_;  // by layer of this rank; empty: 1
  std::vector<uint32_t> blocks_of_replicas_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<int32_t> counts_before_;  // of experts, by the warm-up
  Channel channel_;
};

}  // namespace maniple
