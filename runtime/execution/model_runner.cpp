#include <runtime/execution/dry_run.hpp>
#include <runtime/execution/model_runner.hpp>

#include <algorithm>

namespace maniple {
namespace {

uint32_t microseconds(std::chrono::duration<double> time) {
  return static_cast<uint32_t>(std::clamp(time.count() * 1e6, 0.0, 4e9));
}

}  // namespace

BatchLimits RunnerLimits::batch() const {
  const int64_t block = block_tokens(), blocks = (max_model_len + block - 1) / block;
  return {.max_tokens = step_tokens,
          .max_sequences = max_num_seqs,
          .max_blocks = blocks * context.owners,
          .block_size = block_size,
          .context = context,
          .max_rows = max_rows,
          .windows = window > 0};
}

BatchLimits RunnerSizes::batch(bool samples) const {
  BatchLimits batch = limits.batch();
  batch.num_blocks = samples ? num_blocks : 0;
  batch.vocabulary_size = vocabulary_size;
  return batch;
}

Workspace::Sizes dry_run(Model& model, const RankPlan& plan, Ops& ops, const RunnerLimits& limits,
                         DType activation, const ModelConfig& config) {
  DryOps dry(ops);
  const auto [owner, owners] = plan.context();
  Groups groups{.tensor = std::make_unique<DryCommunicator>(plan.tensor())};
  if (owners > 1)
    groups.context =
        std::make_unique<DryCommunicator>(TensorRank{static_cast<int>(owner), static_cast<int>(owners)});
  if (plan.expert().size > 1 && plan.expert_part().size > 1) {
    groups.expert = std::make_unique<DryCommunicator>(plan.expert());
    groups.expert_tensor = std::make_unique<DryCommunicator>(plan.expert_part());
  }
  Workspace workspace;
  std::atomic<uint32_t> layer = 0;
  ForwardContext context{dry, workspace, groups, activation, layer};
  const std::vector<KvPages> pages(static_cast<size_t>(model.num_layers()));
  const TensorView rows{nullptr, activation, {limits.step_tokens, config.hidden_size}};
  if (!model.embedding() && ops.device().captures())  // of a graph
    workspace.take(activation, {limits.max_num_seqs, config.hidden_size});
  const TensorView input = model.embedding() ? BatchBuilder::largest_ids(limits.batch()) : rows;
  const TensorView out = model.forward(BatchBuilder::largest(limits.batch()), input, pages, context);
  if (!model.head()) return workspace.peak();
  const std::vector<SamplerRow> samples(static_cast<size_t>(limits.batch().rows()),
                                        {{.temperature = 1, .top_k = 1}, most_logprobs, 0});
  const Sampler sampler(config.vocab_size, model.vocabulary());
  if (ops.device().captures()) sampler.draw(out, BatchBuilder::largest(samples), context);
  sampler.launch(out, BatchBuilder::largest(samples), context);
  return workspace.peak();
}

ModelRunner::ModelRunner(Model& model, Ops& ops, const Groups& groups, const RunnerSizes& sizes,
                         std::atomic<uint32_t>& layer)
    : max_num_seqs_(sizes.limits.max_num_seqs),
      hidden_size_(sizes.hidden_size),
      model_(model),
      table_(sizes.limits.max_num_seqs, sizes.num_blocks, sizes.limits.block_tokens(), sizes.tokens_in_plan,
             sizes.limits.max_rows, sizes.limits.windows(sizes.num_blocks)),
      builder_(ops, sizes.batch(model.head())),
      cache_(ops.device(), sizes.kv, sizes.num_blocks, sizes.kv_scales,
             sizes.limits.windows(sizes.num_blocks).blocks),
      sampler_(sizes.vocabulary_size, model.vocabulary()),
      workspace_(ops.device(), sizes.scratch, groups.tensor->sum_memory(sizes.scratch.sums)),
      context_{ops, workspace_, groups, sizes.activation, layer} {}

std::vector<size_t> decode_buckets(size_t most) {
  std::vector<size_t> buckets;
  for (size_t bucket = 1; bucket < most; bucket += bucket < 2     ? 1
                                                   : bucket < 4   ? 2
                                                   : bucket < 16  ? 4
                                                   : bucket < 128 ? 8
                                                   : bucket < 256 ? 16
                                                                  : 32)
    buckets.push_back(bucket);
  buckets.push_back(most);
  return buckets;
}

TensorView ModelRunner::idle_input(size_t rows) {
  if (model_.embedding()) return builder_.token_ids();
  return workspace_.take(context_.activation, {static_cast<int64_t>(rows), hidden_size_});
}

void ModelRunner::warm_up(size_t tokens) {
  for (const size_t of_step : {max_num_seqs_, tokens}) {
    if (of_step < max_num_seqs_) continue;
    const Workspace::Scope scope(workspace_);
    const TensorView out = forward(builder_.build({}, max_num_seqs_, of_step), {});
    if (!model_.head()) context_.groups.stages->send({}, out);
    if (!model_.embedding()) context_.groups.stages->release();
  }
  Device& device = context_.ops.device();
  const Communicator& tensor = *context_.groups.tensor;
  const Tensor mine = zeroed(device, DType::fp32, {tensor.size(), 1});
  Tensor all(device, DType::fp32, {tensor.size(), 1});
  context_.groups.tensor->all_gather(mine.view().rows(0, 1), all);
  context_.groups.tensor->all_to_all(mine, all);
  device.synchronize();
}

// The largest first: it needs the most memory. No graph holds a link's calls: rows that come from another stage are copied to
// the graph's input.
void ModelRunner::capture_decodes() {
  const std::vector<size_t> buckets = decode_buckets(max_num_seqs_);
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    const Workspace::Scope scope(workspace_);
    const StepBatch batch = builder_.build({}, *bucket);
    DecodeGraph& decode = graphs_[*bucket];
    decode.input = idle_input(*bucket);
    const auto step = [&] {
      decode.out = model_.forward(batch, decode.input, cache_.pages(), context_);
      if (model_.head()) decode.drawn = sampler_.draw(decode.out, builder_.sampler_batch(), context_);
    };
    {
      const Workspace::Scope warm_up(workspace_);
      step();
    }
    const auto before = context_.groups.counts();
    decode.graph = context_.ops.device().capture(step);
    decode.calls = context_.groups.counts();
    for (auto& [axis, calls] : decode.calls) calls.add_calls(before.at(axis), -1);
    decode.workspace = workspace_.used();
  }
}

TensorView ModelRunner::forward(const StepBatch& batch, const StageStep& step) {
  const TensorView ids = builder_.token_ids();
  const int64_t rows = model_.rows(ids.shape[0], context_.groups).count(ids.shape[0]);
  const TensorView input = model_.embedding() ? ids : context_.groups.stages->take(step, rows);
  return model_.forward(batch, input, cache_.pages(), context_);
}

// Only the rows of sequences cross between stages; those of padding keep what they had.
TensorView ModelRunner::replay(DecodeGraph& decode, const StageStep& step, int64_t rows) {
  ++decode.replays;
  workspace_.take(DType::uint8, {static_cast<int64_t>(decode.workspace)});
  if (!model_.embedding()) {
    const TensorView taken = context_.groups.stages->take(step, rows);
    context_.ops.device().copy(decode.input.data, taken.data, taken.bytes());
  }
  decode.graph->replay();
  return model_.head() ? decode.out : decode.out.rows(0, rows);
}

std::map<GroupAxis, CollectiveCounts> ModelRunner::collectives() const {
  auto sums = context_.groups.counts();
  for (const auto& [bucket, decode] : graphs_)
    for (const auto& [axis, calls] : decode.calls) sums[axis].add_calls(calls, decode.replays);
  return sums;
}

void ModelRunner::launch(const StepPlan& plan) {
  const std::span<const SequenceView> sequences = table_.apply(plan);
  Launched& step = launched_.emplace_back();
  step.number = plan.step;
  for (const SequenceView& sequence : sequences) step.counts.push_back(sequence.rows());
  if (sequences.empty()) return;
  Device& device = context_.ops.device();
  for (const BlockCopy& copy : plan.copies) cache_.copy_block(device, copy.from, copy.to, false);
  for (const BlockCopy& copy : plan.window_copies) cache_.copy_block(device, copy.from, copy.to, true);
  builder_.copy(plan.copies);
  const Workspace::Scope scope(workspace_);
  const bool decodes = std::ranges::all_of(sequences, [](const SequenceView& sequence) {
    return sequence.query_length == 1 && sequence.rows_sampled == 1 && sequence.rows_scored == 0;
  });
  const auto captured = decodes ? graphs_.lower_bound(sequences.size()) : graphs_.end();
  const bool eager = captured == graphs_.end();
  const StepBatch batch = builder_.build(sequences, eager ? 0 : captured->first);
  const double waited = context_.groups.seconds();
  const StageStep key{plan.step, plan.state_hash};
  if (!eager) context_.layer = in_graph + static_cast<uint32_t>(captured->first);
  const TensorView out =
      eager ? forward(batch, key) : replay(captured->second, key, static_cast<int64_t>(sequences.size()));
  if (!model_.head()) context_.groups.stages->send(key, out);
  if (!model_.embedding()) context_.groups.stages->release();
  const Clock::time_point forwarded = Clock::now();
  const SamplerBatch& rows = builder_.sampler_batch();
  if (model_.head())
    step.rows = sampler_.launch(out.rows(0, static_cast<int64_t>(rows.rows.size())), rows, context_,
                                eager ? std::span<const Candidate>() : captured->second.drawn);
  step.times = {microseconds(forwarded - step.began), microseconds(Clock::now() - forwarded),
                eager ? microseconds(std::chrono::duration<double>(context_.groups.seconds() - waited))
                      : StepTimes::unknown};
}

// Work of a device that runs beside the host ends when its rows arrive, after that of the step before.
StepTimes ModelRunner::times_of(const Launched& step) {
  const Clock::time_point began = std::max(step.began, std::exchange(collected_, Clock::now()));
  if (context_.ops.device().shares_host_memory()) return step.times;
  return {microseconds(collected_ - began), 0, step.times.communication};
}

StepResult ModelRunner::collect() {
  require(!launched_.empty(), "a result is collected of a step that was not launched");
  Launched& step = launched_.front();
  StepResult result;
  result.step = step.number;
  result.counts = std::move(step.counts);
  for (const SampledRow& row : step.rows.wait()) {
    result.tokens.push_back({row.id, row.logprob, static_cast<uint32_t>(row.alternatives.size())});
    for (const TokenLogit& alternative : row.alternatives)
      result.alternatives.push_back({alternative.id, alternative.logit});
  }
  result.times = times_of(step);
  launched_.pop_front();
  return result;
}

}  // namespace maniple
