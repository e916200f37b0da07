#include <kernels/reference/rows.hpp>
#include <launch/tools/bench/model_shard.hpp>
#include <launch/tools/bench/roofline.hpp>
#include <runtime/checkpoint/loading/random_weights.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <runtime/checkpoint/loading/weight_sizes.hpp>
#include <runtime/device_choice.hpp>
#include <runtime/execution/dry_run.hpp>

#include <algorithm>
#include <cmath>
#include <random>

namespace maniple {
namespace {

constexpr int64_t short_sequence = 16;  // the smallest block of a KV cache

int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

// Of three stages the middle one has layers only: rows of the residual stream are its input and its output.
RankPlan stage(TensorRank place, int index, IndexRange layers) {
  RankPlan plan;
  plan.grid = {.tensor = place.size, .pipeline = 3, .data = 1};
  plan.position = {.tensor = place.rank, .pipeline = index, .data = 0};
  plan.layers = layers;
  return plan;
}

ModelConfig cut(ModelConfig config, TensorRank place, DType type, uint64_t memory) {
  // The kind of the most layers, which is that of the last one.
  const int64_t last = config.num_layers() - 1;
  const uint64_t layer =
      stored_cost(*make_model(config, stage(place, 1, {last, last + 1})), type, *scheme_of(config), type)
          .weight_bytes;
  const auto enough = static_cast<int64_t>(std::max(memory / layer + 1, uint64_t{2}));
  config.layers.erase(config.layers.begin(), config.layers.end() - std::min(config.num_layers(), enough));
  return config;
}

// Rows that are alike would all choose the same experts.
Tensor random_rows(Device& device, DType type, const Shape& shape) {
  std::mt19937 random;
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (float& value : values) value = static_cast<float>(random()) * 0x1p-31F - 1;
  Tensor rows(device, type, shape);
  std::vector<std::byte> bytes(rows.view().bytes());
  reference::write(view_of(bytes.data(), type, shape), 0, values);
  device.upload(rows.view().data, bytes.data(), bytes.size());
  return rows;
}

}  // namespace

ModelShard::ModelShard(const ModelConfig& config, TensorRank place, const EngineOptions& engine,
                       const JobPlan& plan, uint64_t memory, Backend& backend,
                       std::atomic<uint32_t>& progress)
    : engine_(engine),
      plan_(plan),
      memory_(memory),
      config_(cut(config, place, plan.dtype, memory)),
      scheme_(scheme_of(config_)),
      device_(*backend.device),
      ops_(*backend.ops),
      groups_{.tensor = std::make_unique<DryCommunicator>(place)},
      layers_(make_model(config, stage(place, 1, {0, config_.num_layers()}))),
      head_(make_model(config, stage(place, 2, {0, 0}))),
      cost_of_layers_(stored_cost(*layers_, plan.dtype, *scheme_, plan.kv_dtype)),
      cost_of_head_(stored_cost(*head_, plan.dtype, *scheme_, plan.dtype)),
      context_{ops_, workspace_, groups_, plan.dtype, progress} {}

uint64_t ModelShard::bytes_needed(int64_t longest) const {
  return cost_of_layers_.weight_bytes + cost_of_head_.weight_bytes +
         std::max(memory_, static_cast<uint64_t>(longest) * cost_of_layers_.kv_bytes);
}

void ModelShard::load() {
  refuse_cache(kv_layout(short_sequence), plan_.dtype, *scheme_);
  for (Model* model : {layers_.get(), head_.get()}) {
    make_weights(*model, ops_, plan_.dtype, *scheme_, nullptr);
    fill_with_random(*model, ops_, *scheme_, engine_.seed, context_.layer);
  }
  layers_->prepare(ops_, short_sequence);
}

// The blocks go round in a circle.
StepBatch ModelShard::batch_of(int64_t tokens, int64_t query, int64_t past, const KvLayout& layout,
                               int64_t num_blocks) {
  const int64_t sequences = parts(tokens, query), each = parts(past + query, layout.block_size);
  std::vector<int32_t> blocks;
  for (int64_t i = 0; i < sequences * each; ++i) blocks.push_back(static_cast<int32_t>(i % num_blocks));
  std::vector<SequenceView> views(static_cast<size_t>(sequences));
  for (int64_t i = 0; i < sequences; ++i) {
    SequenceView& view = views[static_cast<size_t>(i)];
    view.seat = static_cast<Seat>(i);
    view.past_length = static_cast<uint32_t>(past);
    view.query_length = static_cast<uint32_t>(std::min(query, tokens - i * query));
    view.blocks = std::span(blocks).subspan(static_cast<size_t>(i * each), static_cast<size_t>(each));
  }
  cache_.reset();  // before there is another one
  cache_ = std::make_unique<KvCache>(device_, KvGeometry{num_layers(), layout}, num_blocks);
  builder_ = std::make_unique<BatchBuilder>(ops_, BatchLimits{tokens, sequences, each, layout.block_size});
  return builder_->build(views);
}

KvLayout ModelShard::kv_layout(int64_t block_size) const {
  return KvLayout::of(layers_->heads(), block_size, plan_.kv_dtype);
}

ModelShard::Pass ModelShard::layers(int64_t tokens) {
  const StepBatch batch = batch_of(tokens, std::min(tokens, short_sequence), 0, kv_layout(short_sequence),
                                   parts(tokens, short_sequence));
  input_ = random_rows(device_, plan_.dtype, {tokens, config_.hidden_size});
  DryOps dry(ops_);
  Workspace measured;
  ForwardContext dry_context{dry, measured, groups_, plan_.dtype, context_.layer};
  layers_->forward(batch, input_, cache_->pages(), dry_context);
  workspace_ = Workspace(device_, measured.peak());
  return [this, batch] {
    const Workspace::Scope scope(workspace_);
    layers_->forward(batch, input_, cache_->pages(), context_);
  };
}

ModelShard::Pass ModelShard::head(int64_t rows) {
  const VocabularyShard vocabulary = head_->vocabulary();
  const auto count = static_cast<size_t>(rows);
  input_ = touched(device_, plan_.dtype, {rows, config_.hidden_size});
  output_ = Tensor(device_, DType::fp32, {rows, vocabulary.padded.size()});
  draws_ = zeroed(device_, DType::uint8, {rows, sizeof(SamplingRow)});  // greedy
  candidates_ = Tensor(device_, DType::uint8, {rows, sizeof(Candidate)});
  ops_.prepare_matmul(input_, head_->head()->matrix, {}, output_);
  return [this, vocabulary, count] {
    ops_.matmul(input_, head_->head()->matrix, {}, output_);
    ops_.best_candidates(output_, vocabulary.valid,
                         {reinterpret_cast<const SamplingRow*>(draws_.view().data), count}, {},
                         {reinterpret_cast<Candidate*>(candidates_.view().data), count});
  };
}

ModelShard::Pass ModelShard::attention(int64_t sequences, int64_t query, int64_t past) {
  const HeadLayout heads = layers_->heads();
  const KvLayout layout = kv_layout(engine_.block_size);
  const int64_t each = parts(past + query, layout.block_size),
                fitting = static_cast<int64_t>(memory_ / layout.block_bytes()) / num_layers();
  const StepBatch batch =
      batch_of(sequences * query, query, past, layout, std::min(sequences * each, std::max(each, fitting)));
  for (const KvPages& pages : cache_->pages()) touch(device_, pages.bytes);
  input_ = touched(device_, plan_.dtype, {sequences * query, heads.query_width()});
  output_ = Tensor(device_, plan_.dtype, {sequences * query, heads.out_width()});
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(heads.key_dim)));
  return [=, this] {
    for (const KvPages& pages : cache_->pages())
      ops_.attention({input_, heads, batch.attention, pages, output_, scale});
  };
}

}  // namespace maniple
