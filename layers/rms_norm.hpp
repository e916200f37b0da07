// RMSNorm (arXiv 1910.07467) of the residual stream, computed in fp32. A rank works on its own rows (context.rows) and gathers the
// others' results.
#pragma once

#include <layers/forward_context.hpp>
#include <layers/linear.hpp>
#include <layers/weight.hpp>

#include <span>
#include <string>

namespace maniple {

class RmsNorm {
 public:
  RmsNorm(const std::string& source, int64_t width, double epsilon)
      : epsilon_(static_cast<float>(epsilon)), weight_{vector_spec({source}, width, {0, width})} {}
  // Of these heads of the source, as HeadLanes has them; rows: of the source.
  static RmsNorm of_heads(const std::string& source, int64_t rows, const HeadLanes& lanes,
                          std::span<const int64_t> heads, double epsilon) {
    RmsNorm norm(source, std::ssize(heads) * lanes.padded(), epsilon);
    norm.weight_.spec.pieces.clear();
    for (size_t i = 0; i < heads.size(); ++i)
      lanes.for_each_run([&](IndexRange stored, int64_t local, int64_t step) {
        const int64_t first = heads[i] * lanes.size;
        norm.weight_.spec.pieces.push_back({.source = {source},
                                            .source_shape = {rows},
                                            .rows = {first + stored.begin, first + stored.end},
                                            .columns = {0, 1},
                                            .local_row = static_cast<int64_t>(i) * lanes.padded() + local,
                                            .row_step = step});
      });
    return norm;
  }
  // residual, delta: own rows; out: [tokens, width], the norm of all rows.
  void forward(ConstTensorView residual, TensorView out, ForwardContext& context) const {
    context.ops.rms_norm(residual, weight_.vector, epsilon_, context.rows.own(out));
    context.rows.gather(out, *context.groups.tensor);
  }
  // residual += delta before the norm.
  void forward_adding(ConstTensorView delta, TensorView residual, TensorView out,
                      ForwardContext& context) const {
    context.ops.add_rms_norm(delta, residual, weight_.vector, epsilon_, context.rows.own(out));
    context.rows.gather(out, *context.groups.tensor);
  }
  ConstTensorView weight() const { return weight_.vector; }
  float epsilon() const { return epsilon_; }
  void append_parameters(Parameters& parameters) { parameters.push_back(&weight_); }

 private:
  float epsilon_;
  Parameter weight_;
};

}  // namespace maniple
