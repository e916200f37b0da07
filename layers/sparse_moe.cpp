#include <layers/linear.hpp>
#include <layers/sparse_moe.hpp>
#include <parallel/shard.hpp>

#include <fmt/format.h>

namespace maniple {
namespace {

constexpr int64_t panel = 32;  // gate and up begin at whole panels of the kernels

}  // namespace

SparseMoe::SparseMoe(const std::string& layer, const ModelConfig& config, const RankPlan& plan)
    : all_experts_(config.experts.count),
      experts_(even_shard(all_experts_, plan.expert().size, plan.expert().rank, "experts")),
      parts_(plan.expert_part()),
      router_(config.experts.router) {
  const int64_t hidden = config.hidden_size, inner = config.experts.width, all = all_experts_;
  const IndexRange part = granular_shard(inner, parts_.size, parts_.rank, config.activation_group);
  const ReductionSlices slices = reduction_slices(inner, parts_.size, config.activation_group);
  const double used = static_cast<double>(router_.per_token) / static_cast<double>(all);
  width_ = part.size();
  keeps_order_ = slices.independent_of_parts && expert_slices(all) % plan.expert().size == 0;
  const ExpertNames& names = config.experts.names;
  const std::string block = fmt::format("{}.{}", layer, names.block), fused = layer + ".mlp",
                    gate_up = fused + ".experts.gate_up_proj", down = fused + ".experts.down_proj";
  const auto name_of = [&](int64_t expert, std::string_view part) {
    return fmt::format("{}.experts.{}.{}", block, expert, part);
  };
  gate_.spec = {.rows = all,
                .columns = hidden,
                .pieces = {{.source = {fmt::format("{}.{}", block, names.router)},
                            .source_shape = {all, hidden},
                            .rows = {0, all},
                            .columns = {0, hidden},
                            .fused = {{fused + ".gate"}, {all, hidden}, 0}}},
                .fp32 = true};
  if (!names.correction_bias.empty())
    bias_.spec = {.role = WeightRole::vector,
                  .rows = all,
                  .pieces = {{.source = {fmt::format("{}.{}", block, names.correction_bias), ""},
                              .source_shape = {all},
                              .rows = {0, all},
                              .columns = {0, 1},
                              .fused = {{fused + ".e_score_correction_bias", ""}, {all}, 0}}}};
  const int64_t half = (width_ + panel - 1) / panel * panel;
  const IndexRange every_row{0, hidden}, every_column{0, hidden};
  for (int64_t e = experts_.begin; e < experts_.end; ++e) {
    const auto half_of = [&](std::string_view name, int64_t index) {
      return WeightPiece{.source = {name_of(e, name)},
                         .source_shape = {inner, hidden},
                         .rows = part,
                         .columns = every_column,
                         .local_row = index * half,
                         .fused = {{gate_up, ""}, {all, 2 * inner, hidden}, (2 * e + index) * inner}};
    };
    gate_up_.push_back({.spec = {.rows = 2 * half,
                                 .columns = hidden,
                                 .pieces = {half_of(names.gate, 0), half_of(names.up, 1)},
                                 .used = used,
                                 .grouped = gate_up},
                        .matrix = {},
                        .vector = {}});
    down_.push_back({.spec = {.rows = hidden,
                              .columns = width_,
                              .slices = slices.local,
                              .pieces = {{.source = {name_of(e, names.down)},
                                          .source_shape = {hidden, inner},
                                          .rows = every_row,
                                          .columns = part,
                                          .fused = {{down, ""}, {all, hidden, inner}, e * hidden}}},
                              .used = used,
                              .grouped = down},
                     .matrix = {},
                     .vector = {}});
  }
  gate_up_weights_ = weights_of(gate_up_);
  down_weights_ = weights_of(down_);
}

void SparseMoe::append_parameters(Parameters& parameters) {
  parameters.push_back(&gate_);
  if (bias_.spec.rows > 0) parameters.push_back(&bias_);
  for (size_t e = 0; e < gate_up_.size(); ++e) {
    parameters.push_back(&gate_up_[e]);
    parameters.push_back(&down_[e]);
  }
}

int64_t SparseMoe::route(ConstTensorView x, Routing& routing, ForwardContext& context) const {
  Router router = router_;
  router.bias = bias_.vector;
  if (const auto rows = context.ops.matmul_route(x, gate_.matrix, router, routing)) return *rows;
  const TensorView logits = context.workspace.take(DType::fp32, {x.shape[0], all_experts_});
  context.ops.matmul(in_fp32(x, context), gate_.matrix, {}, logits);
  return context.ops.route(logits, router, routing);
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

// The ranks of an expert hold parts of its inner rows, but their largest is that of all parts.
ConstTensorView SparseMoe::row_maxima(ConstTensorView inner, ForwardContext& context) const {
  if (down_[0].matrix.activation != ActivationRule::per_token || parts_.size == 1) return {};
  const TensorView own = context.workspace.take(DType::fp32, {inner.shape[0]}),
                   all = context.workspace.take(DType::fp32, {parts_.size, inner.shape[0]});
  context.ops.row_abs_maxima(inner, own);
  context.groups.expert_parts().all_gather(own, all);
  return all;
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
  ops.grouped_matmul_gate_mul(GateActivation::silu, x, routing, gate_up_weights_, inner);
  ops.grouped_matmul(inner, routing, down_weights_, outputs, row_maxima(inner, context));
  if (!adds_over_tensor()) context.groups.expert_parts().all_reduce(outputs);
  const int64_t slices = keeps_order_ ? expert_slices(all_experts_) * experts_.size() / all_experts_ : 1;
  ops.combine(outputs, routing, slices, sum);
}

}  // namespace maniple
