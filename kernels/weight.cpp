#include <kernels/weight.hpp>

namespace maniple {

void require_computable(const WeightShape& shape) {
  require(shape.rows >= 0 && shape.columns > 0 && shape.slices > 0 && shape.columns % shape.slices == 0,
          "the columns of a weight divide by its slices");
  if (shape.format == WeightFormat::dense) return;
  const bool rounds = shape.activation != ActivationRule::none,
             by_group = shape.activation == ActivationRule::per_group;
  require((shape.group == -1 || shape.group > 0) && shape.first_column >= 0, "groups of columns");
  require(shape.format == WeightFormat::mxfp4
              ? shape.scale == DType::e8m0
              : shape.scale == DType::bf16 || shape.scale == DType::fp16 || shape.scale == DType::fp32,
          "scales of mxfp4 are powers of two, others floating point");
  require(!rounds || by_group || (shape.group == -1 && bits_of(shape.format) == 8),
          "inputs rounded per token have one scale for each row of the weight");
  require(!by_group || (shape.format == WeightFormat::fp8 && shape.group > 0 &&
                        shape.first_column % shape.group == 0 &&
                        (shape.slices == 1 || shape.slice_columns() % shape.group == 0)),
          "inputs rounded by groups have whole groups in each slice");
  require(by_group || !shape.power_scales, "scales of inputs are powers of two by groups");
  require(!shape.zeros || (!rounds && shape.common_zero() != 0),
          "zeros are for integers that are not multiplied by integers");
}

}  // namespace maniple
