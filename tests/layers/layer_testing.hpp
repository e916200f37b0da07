// Fills layers from made-up checkpoints, without the runtime: a source tensor is a function of (row, column).
#pragma once

#include <kernels/backend.hpp>
#include <kernels/factory/make_backend.hpp>
#include <layers/forward_context.hpp>
#include <layers/weight.hpp>
#include <support/thread_world.hpp>

#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace maniple::testing {

using SourceTensor = std::function<float(int64_t row, int64_t column)>;
using Sources = std::map<std::string, SourceTensor>;

inline void fill(const Parameters& parameters, const Sources& sources, Ops& ops, DType dtype = DType::fp32) {
  for (Parameter* parameter : parameters) {
    const WeightSpec& spec = parameter->spec;
    const bool matrix = spec.role == WeightRole::matrix;
    if (matrix)
      parameter->matrix = ops.make_weight({spec.type(dtype), spec.rows, spec.columns, spec.slices});
    else
      parameter->vector = Tensor(ops.device(), DType::fp32, {spec.rows});
    for (const WeightPiece& piece : spec.pieces) {
      const bool fused = !sources.contains(piece.source.tensor());
      const SourceTensor& source = sources.at((fused ? piece.fused.source : piece.source).tensor());
      const int64_t first_row = fused ? piece.fused.first_row : 0;
      std::vector<float> raw;
      int64_t rows = 0;
      const IndexRange local_rows = piece.local_rows(), local_columns = piece.local_columns();
      for (int64_t i = local_rows.begin + piece.row_offset; i < local_rows.end; i += piece.row_step, ++rows)
        for (int64_t j = local_columns.begin; j < local_columns.end; ++j) {
          raw.push_back(piece.transposed ? source(first_row + j, i) : source(first_row + i, j));
          if ((j + 1) % piece.padding.run == 0)
            raw.resize(raw.size() + static_cast<size_t>(piece.padding.padded - piece.padding.run));
        }
      if (raw.empty()) continue;
      if (matrix)
        ops.pack(parameter->matrix, piece.local_row,
                 {view_of(raw.data(), DType::fp32, {rows, piece.padding.local(local_columns.size())})});
      else
        std::copy(raw.begin(), raw.end(), parameter->vector.view().as<float>() + piece.local_row);
    }
  }
}

// A rank that runs layers in fp32.
struct Rank {
  explicit Rank(World& world, BackendKind kind = BackendKind::reference)
      : backend(make_backend({.kind = kind, .threads = 1})), workspace(*backend.device, {16 << 20, 4 << 20}) {
    std::vector<int> all(static_cast<size_t>(world.size()));
    std::iota(all.begin(), all.end(), 0);
    groups.tensor = world.make_group(all, *backend.ops);
  }
  TensorRank place() const { return {groups.tensor->rank(), groups.tensor->size()}; }
  ForwardContext context() { return {*backend.ops, workspace, groups, DType::fp32, layer}; }

  Backend backend;
  Workspace workspace;
  Groups groups;
  std::atomic<uint32_t> layer = 0;
};

}  // namespace maniple::testing
