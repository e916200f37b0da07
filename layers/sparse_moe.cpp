#include <layers/linear.hpp>
#include <layers/sparse_moe.hpp>
#include <parallel/shard.hpp>

#include <fmt/format.h>

#include <tuple>
#include <utility>

namespace maniple {
namespace {

constexpr int64_t panel = 32;  // gate and up begin at whole panels of the kernels

// Appends `rows` rows to a vector, for pieces whose rows count from there.
void add_pieces(WeightSpec& vector, int64_t rows, std::vector<WeightPiece> pieces) {
  vector.role = WeightRole::vector;
  for (WeightPiece& piece : pieces) {
    piece.local_row += vector.rows;
    vector.pieces.push_back(std::move(piece));
  }
  vector.rows += rows;
}

// Where the matrices of a layer's experts lie: one by one, or stacked in tensors of three dimensions.
class StoredExperts {
 public:
  StoredExperts(std::string block, const std::string& fused, const ExpertsConfig& experts, int64_t hidden)
      : gate_up_name(fused + ".experts.gate_up_proj"),
        down_name(fused + ".experts.down_proj"),
        block_(std::move(block)),
        experts_(experts),
        hidden_(hidden) {}

  // The gate is at local row 0, up at local row `half`.
  std::vector<WeightPiece> gate_up(int64_t e, IndexRange inner, int64_t half) const {
    const int64_t width = experts_.width;
    const ExpertNames& names = experts_.names;
    if (names.interleaved)
      return taking_turns(stacked(gate_up_name, e, {2 * width, of_both(inner)}, {hidden_, {0, hidden_}}),
                          half);
    const auto piece = [&](std::string_view matrix, int64_t index) -> WeightPiece {
      return {.source = {name_of(e, matrix)},
              .source_shape = {width, hidden_},
              .rows = inner,
              .columns = {0, hidden_},
              .local_row = index * half,
              .fused = {{gate_up_name, ""}, {experts_.count, 2 * width, hidden_}, (2 * e + index) * width}};
    };
    return {piece(names.gate, 0), piece(names.up, 1)};
  }
  WeightPiece down(int64_t e, IndexRange inner) const {
    const int64_t width = experts_.width;
    if (experts_.names.interleaved) return stacked(down_name, e, {hidden_, {0, hidden_}}, {width, inner});
    return {.source = {name_of(e, experts_.names.down)},
            .source_shape = {hidden_, width},
            .rows = {0, hidden_},
            .columns = inner,
            .fused = {{down_name, ""}, {experts_.count, hidden_, width}, e * hidden_}};
  }
  std::vector<WeightPiece> gate_up_biases(int64_t e, IndexRange inner, int64_t half) const {
    return taking_turns(bias(gate_up_name, e, 2 * experts_.width, of_both(inner)), half);
  }
  WeightPiece down_bias(int64_t e) const { return bias(down_name, e, hidden_, {0, hidden_}); }

  const std::string gate_up_name, down_name;

 private:
  struct Side {  // of a matrix
    int64_t size;
    IndexRange part;
  };

  std::string name_of(int64_t e, std::string_view matrix) const {
    return fmt::format("{}.experts.{}.{}", block_, e, matrix);
  }
  static IndexRange of_both(IndexRange inner) { return {2 * inner.begin, 2 * inner.end}; }

  // Of the matrix of expert e in a tensor [experts, outputs, inputs], or [experts, inputs, outputs].
  WeightPiece stacked(const std::string& tensor, int64_t e, const Side& outputs, const Side& inputs) const {
    const auto& [down, across] = experts_.transposed ? std::tie(inputs, outputs) : std::tie(outputs, inputs);
    return {.source = {tensor, ""},
            .source_shape = {experts_.count, down.size, across.size},
            .rows = {e * down.size + down.part.begin, e * down.size + down.part.end},
            .columns = across.part,
            .transposed = experts_.transposed};
  }
  // Of the row of expert e in a tensor [experts, outputs].
  WeightPiece bias(const std::string& matrix, int64_t e, int64_t outputs, IndexRange part) const {
    return {.source = {matrix + "_bias", ""},
            .source_shape = {experts_.count, outputs},
            .rows = {e, e + 1},
            .columns = part,
            .transposed = true};
  }
  static std::vector<WeightPiece> taking_turns(WeightPiece gate, int64_t half) {
    gate.row_step = 2;
    WeightPiece up = gate;
    up.row_offset = 1;
    up.local_row = half;
    return {gate, up};
  }

  const std::string block_;
  const ExpertsConfig& experts_;
  const int64_t hidden_;
};

}  // namespace

SparseMoe::SparseMoe(const std::string& layer, const ModelConfig& config, const RankPlan& plan)
    : all_experts_(config.experts.count),
      experts_(even_shard(all_experts_, plan.expert().size, plan.expert().rank, "experts")),
      parts_(plan.expert_part()),
      router_(config.experts.router),
      activation_(config.gate) {
  const int64_t hidden = config.hidden_size, inner = config.experts.width, all = all_experts_;
  const IndexRange part = granular_shard(inner, parts_.size, parts_.rank, config.activation_group);
  const ReductionSlices slices = reduction_slices(inner, parts_.size, config.activation_group);
  const double used = static_cast<double>(router_.per_token) / static_cast<double>(all);
  width_ = part.size();
  keeps_order_ = slices.independent_of_parts && expert_slices(all) % plan.expert().size == 0;
  const ExpertNames& names = config.experts.names;
  const std::string block = fmt::format("{}.{}", layer, names.block), fused = layer + ".mlp",
                    router = fmt::format("{}.{}", block, names.router);
  gate_.spec = matrix_spec({router}, {all, hidden}, {0, all});
  gate_.spec.pieces[0].fused = {{fused + ".gate"}, {all, hidden}, 0};
  gate_.spec.fp32 = true;
  if (!names.correction_bias.empty()) {
    correction_bias_.spec =
        vector_spec({fmt::format("{}.{}", block, names.correction_bias), ""}, all, {0, all});
    correction_bias_.spec.pieces[0].fused = {{fused + ".e_score_correction_bias", ""}, {all}, 0};
  }
  if (names.biased) logit_bias_.spec = vector_spec({router, "bias"}, all, {0, all});

  const int64_t half = (width_ + panel - 1) / panel * panel;
  const StoredExperts stored(block, fused, config.experts, hidden);
  for (int64_t e = experts_.begin; e < experts_.end; ++e) {
    gate_up_.push_back({{.rows = 2 * half,
                         .columns = hidden,
                         .pieces = stored.gate_up(e, part, half),
                         .used = used,
                         .grouped = stored.gate_up_name}});
    down_.push_back({{.rows = hidden,
                      .columns = width_,
                      .slices = slices.local,
                      .pieces = {stored.down(e, part)},
                      .used = used,
                      .grouped = stored.down_name}});
    if (!names.biased) continue;
    add_pieces(gate_up_bias_.spec, 2 * half, stored.gate_up_biases(e, part, half));
    add_pieces(down_bias_.spec, hidden, {stored.down_bias(e)});
  }
  gate_up_weights_ = weights_of(gate_up_);
  down_weights_ = weights_of(down_);
}

void SparseMoe::append_parameters(Parameters& parameters) {
  parameters.push_back(&gate_);
  for (Parameter* bias : {&correction_bias_, &logit_bias_, &gate_up_bias_, &down_bias_})
    if (bias->spec.rows > 0) parameters.push_back(bias);
  for (size_t e = 0; e < gate_up_.size(); ++e) {
    parameters.push_back(&gate_up_[e]);
    parameters.push_back(&down_[e]);
  }
}

int64_t SparseMoe::route(ConstTensorView x, Routing& routing, ForwardContext& context) const {
  Router router = router_;
  router.bias = correction_bias_.vector;
  router.logit_bias = logit_bias_.vector;
  if (const auto rows = context.ops.matmul_route(x, gate_.matrix, router, routing)) return *rows;
  return context.ops.route(fp32_product(x, gate_, context), router, routing);
}

Routing SparseMoe::routing_of(int64_t tokens, ForwardContext& context) const {
  const int64_t a_token = Routing::experts_a_token(router_, experts_);
  const auto take = [&](DType type, const Shape& shape) { return context.workspace.take(type, shape); };
  return {
      .experts = experts_,
      .tokens = take(DType::int32, {tokens * a_token}),
      .weights = take(DType::fp32, {tokens * a_token}),
      .offsets = take(DType::int32, {experts_.size() + 1}),
      .chosen = take(DType::int32, {tokens, a_token}),
      .places = take(DType::int32, {tokens, a_token}),
      .counts = counts_.view(),
      .past_lengths = context.past_lengths.shape == Shape{tokens} ? context.past_lengths : ConstTensorView{}};
}

ConstTensorView SparseMoe::by_expert(const Parameter& bias) const {
  if (!bias.vector) return {};
  const int64_t experts = experts_.size();
  return bias.vector.view().reshaped({experts, bias.spec.rows / experts});
}

TensorView SparseMoe::forward(ConstTensorView x, ForwardContext& context) const {
  const Groups& groups = context.groups;
  const TensorView sum = context.workspace.take_sum(DType::fp32, x.shape);
  forward_partial(x, sum, context);
  if (adds_over_tensor()) return context.rows.sum(sum, *groups.tensor);
  if (experts_.size() < all_experts_) groups.experts().all_reduce(sum);
  return context.rows.own(sum);
}

void SparseMoe::forward_partial(ConstTensorView x, TensorView sum, ForwardContext& context) const {
  Ops& ops = context.ops;
  const Workspace::Scope scope(context.workspace);
  Routing routing = routing_of(x.shape[0], context);
  const int64_t rows = route(x, routing, context);
  const TensorView inner = context.workspace.take(context.activation, {rows, width_});
  const TensorView outputs = context.workspace.take(DType::fp32, {rows, x.shape[1]});
  ops.grouped_matmul_gate_mul(activation_, x, routing, gate_up_weights_, by_expert(gate_up_bias_), inner);
  Communicator& parts = context.groups.expert_parts();
  ops.grouped_matmul(inner, routing, down_weights_, outputs,
                     row_maxima(inner, down_[0].matrix, parts_.size, parts, context));
  if (!adds_over_tensor()) parts.all_reduce(outputs);
  const int64_t slices = keeps_order_ ? expert_slices(all_experts_) * experts_.size() / all_experts_ : 1;
  // What parts add up after they are weighed has a bias once.
  const bool adds_bias = parts_.rank == 0 || !adds_over_tensor();
  ops.combine(outputs, routing, adds_bias ? by_expert(down_bias_) : ConstTensorView{}, slices, sum);
}

}  // namespace maniple
