// RMSNorm (arXiv 1910.07467) of the residual stream, computed in fp32. A rank works on its own rows (context.rows) and gathers the
// others' results.
#pragma once

#include <layers/forward_context.hpp>
#include <layers/weight.hpp>

#include <string>

namespace maniple {

class RmsNorm {
 public:
  RmsNorm(const std::string& source, int64_t width, float epsilon) : epsilon_(epsilon) {
    weight_.spec = {WeightRole::vector, width, 1, 1, {{{source, "weight"}, {width}, {0, width}, {0, 1}, 0}}};
  }
  // Of heads of `size`, padded as in QkvParallelLinear.
  static RmsNorm of_heads(const std::string& source, int64_t size, int64_t padded, float epsilon) {
    RmsNorm norm(source, padded, epsilon);
    const WeightPiece piece{{source, "weight"}, {size}, {0, size / 2}, {0, 1}, 0};
    norm.weight_.spec.pieces = {piece, piece};
    norm.weight_.spec.pieces[1].rows = {size / 2, size};
    norm.weight_.spec.pieces[1].local_row = padded / 2;
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
