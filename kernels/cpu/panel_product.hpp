// A product of rows with the panels of weights of one shape, on one instruction path: how the rows are rounded and packed, and the
// kernel that multiplies. Dense weights and codes look the same from here.
#pragma once

#include <kernels/cpu/packed_rows.hpp>

#include <vector>

namespace maniple::cpu {

// Memory for rows of x as an activation rule rounds them.
struct RoundedRows {
  std::byte* values;  // [rows, columns]: int8 codes, or e4m3 values in the type of x
  float* scales;      // [rows], or [rows, groups]
  int32_t* sums;      // of int8 codes, [rows, slices]
};

// Rows [first, first + count) of all that are multiplied. index: the row of x for each of all; null: the same. row_maxima: as in
// Ops::matmul, by row of x. rounded: of all rows, where the product rounds.
struct ProductRows {
  ConstTensorView x;
  int64_t first = 0, count = 0;
  const int32_t* index = nullptr;
  ConstTensorView row_maxima = {};
  RoundedRows rounded = {};
};

class PanelProduct {
 public:
  PanelProduct(const PathKernels& path, const WeightShape& shape);

  bool rounds() const { return shape_.activation != ActivationRule::none; }
  int64_t scales_of_row() const {
    return shape_.activation == ActivationRule::per_group ? shape_.groups() : 1;
  }
  RowTiles tiles(int64_t rows) const { return {rows, codes_.tile_rows, codes_.row_step}; }
  int tile_rows() const { return codes_.tile_rows; }
  int64_t row_units() const { return row_units_; }  // of a packed row

  // Packs a tile of tiles(rows.count), rounded by the rule of `weight`.
  void pack(const ProductRows& rows, const Weight& weight, int64_t tile, uint32_t* packed) const;
  // Multiplies packed rows with panels of `weight` from `panel` on. block: everything but slices, slice_units and panels.
  void multiply(const ProductRows& rows, const Weight& weight, int64_t panel, MatmulBlock block) const;

 private:
  void round(const ProductRows& rows, const Weight& weight, int64_t row) const;

  const WeightShape shape_;
  const InputKernels inputs_;
  const MatmulKernel dense_;
  const PackedCodes codes_;  // for dense weights a unit is a word
  const PackedRow row_;
  const int64_t row_units_;
  std::vector<int32_t> run_words_, slice_runs_;
};

// Words of a weight of codes, and where code k of one begins (CodeBlock).
PackedCodes packed_codes(const PathKernels& path, const WeightShape& shape);
int bit_of_code(const WeightShape& shape, int k);

}  // namespace maniple::cpu
