#include <kernels/reference/noise.hpp>
#include <kernels/reference/rows.hpp>
#include <runtime/checkpoint/loading/piece_store.hpp>
#include <runtime/checkpoint/loading/random_weights.hpp>

#include <algorithm>
#include <cmath>

namespace maniple {
namespace {

// Uniform in [-1, 1), by the place of an element in its matrix.
class UniformMatrix {
 public:
  UniformMatrix(uint64_t seed, const WeightPiece& piece)
      : piece_(piece), width_(piece.source_shape[piece.source_shape.rank() - 1]), name_(seed) {
    for (const char c : piece.source.tensor()) name_ = split_mix(name_ ^ static_cast<unsigned char>(c));
  }
  // Of variance 1 / inputs.
  float spread() const {
    const bool by_inputs = piece_.transposed && piece_.source_shape.rank() == 3;
    const int64_t inputs = by_inputs ? piece_.source_shape[1] : width_;
    return std::sqrt(3.0F / static_cast<float>(inputs));
  }

  // write(value): by rows, then columns of the piece.
  void for_each(IndexRange rows, const auto& write) const {
    for (int64_t row = rows.begin; row < rows.end; ++row)
      for (int64_t column = piece_.columns.begin; column < piece_.columns.end; ++column) {
        const uint64_t bits = split_mix(name_ + static_cast<uint64_t>(row * width_ + column));
        write(static_cast<float>(bits >> 40) * 0x1p-23F - 1.0F);
      }
  }

 private:
  const WeightPiece& piece_;
  int64_t width_;
  uint64_t name_;
};

RawRows floats(bool is_vector, const WeightPiece& piece, uint64_t seed, IndexRange rows,
               DecodedRows& memory) {
  const int64_t width = piece.columns.size();
  memory.values.resize(static_cast<size_t>(rows.size() * width) * sizeof(BFloat16));
  auto* values = reinterpret_cast<BFloat16*>(memory.values.data());
  const ConstTensorView view = view_of(values, DType::bf16, {rows.size(), width});
  const bool is_bias = piece.source.part == "bias" || piece.source_shape.rank() == 2;
  const UniformMatrix matrix(seed, piece);
  if (is_vector)
    std::fill_n(values, rows.size() * width, BFloat16(is_bias ? 0.0F : 1.0F));
  else
    matrix.for_each(rows, [&](float value) { *values++ = BFloat16(matrix.spread() * value); });
  return {view};
}

// Codes over their whole range, with one scale: symmetric zero points are as good as any.
RawRows codes(const WeightShape& shape, const WeightPiece& piece, uint64_t seed, IndexRange rows,
              DecodedRows& memory) {
  const int64_t width = piece.columns.size();
  const bool eight_bits = shape.format == WeightFormat::int8, floating = shape.format == WeightFormat::fp8;
  const bool four_bit_floats = shape.format == WeightFormat::mxfp4;
  const float largest = floating ? 448.0F : four_bit_floats ? 6.0F : eight_bits ? 127.0F : 7.0F;
  const uint8_t zero = eight_bits ? 128 : 8;
  const UniformMatrix matrix(seed, piece);
  memory.values.resize(static_cast<size_t>(rows.size() * width));
  auto* code = reinterpret_cast<uint8_t*>(memory.values.data());
  matrix.for_each(rows, [&](float value) {
    *code++ = floating          ? Float8(value * largest).bits
              : four_bit_floats ? static_cast<uint8_t>(8 * (value + 1))
                                : static_cast<uint8_t>(std::lround(value * largest) + zero);
  });
  const Shape groups{rows.size(), shape.groups()};
  const auto count = static_cast<size_t>(groups.elements());
  memory.scales.resize(count * size_of(shape.scale));
  const std::vector<float> scales(count, matrix.spread() / largest);
  reference::write(view_of(memory.scales.data(), shape.scale, groups), 0, scales);
  RawRows raw{view_of(memory.values.data(), DType::uint8, {rows.size(), width}),
              view_of(memory.scales.data(), shape.scale, groups),
              {}};
  if (!shape.zeros) return raw;
  memory.zeros.assign(count, std::byte{zero});
  raw.zeros = view_of(memory.zeros.data(), DType::uint8, groups);
  return raw;
}

}  // namespace

void fill_with_random(Model& model, Ops& ops, const QuantScheme& scheme, uint64_t seed,
                      std::atomic<uint32_t>& blocks) {
  DecodedRows memory;
  for (Parameter* parameter : model.parameters())
    for (const WeightPiece& piece : parameter->spec.pieces) {
      if (piece.columns.size() == 0) continue;
      const bool dense = expected_shape(scheme, parameter->spec, DType::bf16).format == WeightFormat::dense;
      const int64_t step = rows_at_once(piece);
      for (int64_t row = piece.rows.begin; row < piece.rows.end; row += step) {
        const IndexRange rows{row, std::min(row + step, piece.rows.end)};
        store_rows(ops, *parameter, piece, row,
                   dense ? floats(parameter->spec.role == WeightRole::vector, piece, seed, rows, memory)
                         : codes(parameter->matrix, piece, seed, rows, memory));
        ++blocks;
      }
    }
}

}  // namespace maniple
