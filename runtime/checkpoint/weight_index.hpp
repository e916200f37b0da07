// Where each tensor of a checkpoint is stored: read by one rank, known to all.
#pragma once

#include <kernels/tensor/dtype.hpp>
#include <runtime/checkpoint/file_fingerprint.hpp>
#include <runtime/checkpoint/model_files.hpp>

#include <map>
#include <optional>

namespace maniple {

struct TensorInfo {
  std::string stored_type;     // as the file calls it: "BF16"
  std::optional<DType> dtype;  // absent: a type that cannot be read here
  std::vector<int64_t> shape;  // outermost dimension first; empty: a scalar
  uint64_t byte_size = 0;
};

struct IndexedTensor {
  TensorInfo info;
  uint32_t file = 0;    // of the index's files
  uint64_t offset = 0;  // of its first byte in the file: row major, dense
};

using StoredTensors = std::map<std::string, IndexedTensor, std::less<>>;  // by name

struct WeightIndex {
  std::vector<IndexedFile> files;
  StoredTensors tensors;
};

// The files that model.safetensors.index.json names, else model.safetensors, else every *.safetensors. Checks
// all headers; fails with ExitCode::input.
WeightIndex read_index(const ModelFiles& files);

// For the broadcast to the other ranks.
std::string to_bytes(const WeightIndex& index);
WeightIndex index_from(std::string_view bytes);

}  // namespace maniple
