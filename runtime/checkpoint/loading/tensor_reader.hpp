// Reads stored tensors where few are needed: before the weights are loaded.
#pragma once

#include <runtime/checkpoint/extents.hpp>

#include <functional>
#include <map>

namespace maniple {

class TensorReader {
 public:
  // index: must outlive this.
  explicit TensorReader(const WeightIndex& index) : index_(index) {}

  // Rows (of matrix_of) of a tensor, row by row.
  std::vector<std::byte> read(const IndexedTensor& tensor, const IndexRange& rows);
  std::vector<std::byte> read(const IndexedTensor& tensor) {
    return read(tensor, {0, matrix_of(tensor.info).rows});
  }

  // Whole tensors, in the order of their places: of those that lie close together many are read at once.
  using Take = std::function<void(IndexedTensor& tensor, std::vector<std::byte> value)>;
  void read_each(std::vector<IndexedTensor*> tensors, const Take& take);

 private:
  InputFile& file(uint32_t number);

  const WeightIndex& index_;
  std::map<uint32_t, InputFile> files_;
};

}  // namespace maniple
