#include <kernels/reference/reference_ops.hpp>
#include <kernels/reference/rows.hpp>

namespace maniple {

using reference::Floats;

// Packed weights are row major here.
Weight ReferenceOps::make_weight(DType dtype, int64_t rows, int64_t columns, int slices) {
  require(slices >= 1 && columns % slices == 0, "columns of a weight must divide by its reduction slices");
  return {Tensor(device(), dtype, {rows, columns}), dtype, rows, columns, slices};
}

void ReferenceOps::pack(Weight& weight, int64_t first_row, ConstTensorView raw) {
  require(raw.shape.rank() == 2 && raw.shape[1] == weight.columns && first_row + raw.shape[0] <= weight.rows,
          "raw rows do not fit the weight");
  const int64_t columns = weight.columns;
  for (int64_t row = 0; row < raw.shape[0]; ++row)
    reference::write(weight.packed, (first_row + row) * columns,
                     reference::read(raw, row * columns, columns));
}

void ReferenceOps::matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out) {
  const int64_t m = x.shape[0], n = weight.rows, k = weight.columns, slice = weight.slice_columns();
  require(x.shape == Shape{m, k} && out.shape == Shape{m, n}, "shapes of a matmul");
  require(bias.empty() || bias.shape == Shape{n}, "a bias has one value for each output column");
  const Floats inputs = reference::read(x, 0, m * k);
  Floats results(static_cast<size_t>(m * n)), parts(static_cast<size_t>(weight.slices));
  for (int64_t column = 0; column < n; ++column) {
    const Floats weights = reference::read(weight.packed, column * k, k);
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t s = 0; s < weight.slices; ++s)
        parts[static_cast<size_t>(s)] = reference::dot(&inputs[static_cast<size_t>(row * k + s * slice)],
                                                       &weights[static_cast<size_t>(s * slice)], slice);
      const float sum = reference::tree_sum(parts);
      results[static_cast<size_t>(row * n + column)] = bias.empty() ? sum : sum + bias.as<float>()[column];
    }
  }
  reference::write(out, 0, results);
}

void ReferenceOps::embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) {
  const int64_t tokens = ids.shape[0], width = table.columns;
  require(out.shape == Shape{tokens, width} && vocabulary.size() <= table.rows, "shapes of an embedding");
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t id = ids.as<int32_t>()[t];
    const bool here = vocabulary.contains(id);
    reference::write(out, t * width,
                     here ? reference::read(table.packed, (id - vocabulary.begin) * width, width)
                          : Floats(static_cast<size_t>(width)));
  }
}

}  // namespace maniple
