// Where a rank's weights come from, as data. Constructing a layer allocates nothing: it declares Parameters,
// and one loader (runtime/checkpoint/weight_loader) makes and fills them.
#pragma once

#include <kernels/weight.hpp>

#include <string>
#include <vector>

namespace maniple {

// A part of a module of the checkpoint. How a matrix is stored is the scheme's business (runtime/checkpoint/quantization).
struct WeightSource {
  std::string module;           // "model.layers.0.self_attn.q_proj"
  std::string part = "weight";  // or "bias"; empty: the module's name is a tensor's

  std::string tensor() const { return part.empty() ? module : module + "." + part; }
};

// The larger matrix in which some checkpoints store a matrix's rows, from first_row on ("qkv_proj" for
// "k_proj"). Empty module: there is none.
struct FusedTensor {
  WeightSource source;
  Shape shape;
  int64_t first_row = 0;
};

// After every `run` columns of a source, zeros up to `padded` columns.
struct ColumnPadding {
  int64_t run = 1, padded = 1;
  int64_t local(int64_t columns) const { return columns / run * padded; }
};

// A rectangle of a matrix or vector of the checkpoint, and the local row where it begins. A vector is a
// matrix of one column. The outer dimensions of a tensor of three count as one, its rows.
struct WeightPiece {
  WeightSource source;
  Shape source_shape;  // [rows, columns] or [rows]: what the checkpoint must hold
  IndexRange rows;     // of the source; empty where this rank holds nothing of it
  IndexRange columns;  // of the source; [0, 1) for a vector
  int64_t local_row = 0;
  FusedTensor fused = {};  // may hold the whole source
  ColumnPadding padding = {};
  int64_t row_step = 1;     // of what becomes local rows, every row_step-th,
  bool transposed = false;  // the rectangle's columns are local rows
  int64_t row_offset =
      0;  // from this one on: pieces that take turns need the same rectangle, which is read once

  IndexRange local_rows() const { return transposed ? columns : rows; }
  IndexRange local_columns() const { return transposed ? rows : columns; }
  int64_t elements() const {
    return (local_rows().size() - row_offset + row_step - 1) / row_step * local_columns().size();
  }
};

enum class WeightRole : uint8_t {
  matrix,  // packed by Ops, in the weight type
  vector,  // fp32: norms and biases
};

struct WeightSpec {
  WeightRole role = WeightRole::matrix;
  int64_t rows = 0;     // local; rows that no piece covers are zero (padding of vocabularies and heads)
  int64_t columns = 1;  // local
  int slices = 1;       // reduction slices of the columns
  std::vector<WeightPiece> pieces;
  bool fp32 = false;         // a matrix that keeps fp32, whatever the weight type is
  bool decoded = false;      // a matrix of numbers, also where codes are stored
  double used = 1;           // the share of all tokens that a matrix is multiplied with
  std::string grouped = {};  // the product that it shares with those of other experts: all are stored alike

  // Of the checkpoint; those that pad it count nothing.
  uint64_t elements() const {
    uint64_t count = 0;
    for (const WeightPiece& piece : pieces) count += static_cast<uint64_t>(piece.elements());
    return count;
  }
  DType type(DType weight_type) const {
    return fp32 || role == WeightRole::vector ? DType::fp32 : weight_type;
  }
};

// `part` of the rows of a matrix `shape` of the checkpoint.
inline WeightSpec matrix_spec(const WeightSource& source, const Shape& shape, const IndexRange& part) {
  return {.rows = part.size(),
          .columns = shape[1],
          .pieces = {{.source = source, .source_shape = shape, .rows = part, .columns = {0, shape[1]}}}};
}
// `part` of a vector of `size` elements.
inline WeightSpec vector_spec(const WeightSource& source, int64_t size, const IndexRange& part) {
  return {.role = WeightRole::vector,
          .rows = part.size(),
          .pieces = {{.source = source, .source_shape = {size}, .rows = part, .columns = {0, 1}}}};
}

// A weight of one layer on this rank: its spec, and its storage once it is loaded.
struct Parameter {
  WeightSpec spec;
  Weight matrix = {};  // role matrix
  Tensor vector = {};  // role vector: fp32 [rows]
};

// Their matrices, as long as none of them moves.
inline std::vector<const Weight*> weights_of(const std::vector<Parameter>& parameters) {
  std::vector<const Weight*> weights;
  for (const Parameter& parameter : parameters) weights.push_back(&parameter.matrix);
  return weights;
}

using Parameters = std::vector<Parameter*>;  // each layer's list() appends its own

}  // namespace maniple
