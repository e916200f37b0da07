// Where each tensor of a checkpoint is stored: read by one rank, known to all.
#pragma once

#include <kernels/tensor/dtype.hpp>
#include <kernels/tensor/shape.hpp>
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

  size_t item_bytes() const {
    uint64_t elements = 1;
    for (const int64_t size : shape) elements *= static_cast<uint64_t>(size);
    return elements > 0 ? byte_size / elements : 1;
  }
};

// Rows and columns of a tensor (matrix_of) that lie in one piece: row by row, whole rows row_bytes apart.
struct Extent {
  IndexRange rows, columns;
  int64_t row_bytes = 0;         // more than its columns have, where a chunk passes the tensor's edge
  uint32_t file = 0;             // of the index's files
  uint64_t offset = 0;           // of its first byte in the file
  std::optional<Checksum> hash;  // of its bytes

  uint64_t bytes() const { return static_cast<uint64_t>(rows.size() * row_bytes); }
  bool operator==(const Extent&) const = default;
};

struct IndexedTensor {
  TensorInfo info;
  std::vector<Extent> extents;  // tile the tensor, by rows, then columns; one unless the model is packed
  std::vector<std::byte> value =
      {};  // of a tensor that was read with the index (known_tensors.hpp), row by row
};

using IndexedTensors = std::map<std::string, IndexedTensor, std::less<>>;  // by name

struct WeightIndex {
  std::vector<IndexedFile> files;
  IndexedTensors tensors;
  // Known to the rank that read it:
  std::string warning = {};   // where the files contradict each other
  std::string left_out = {};  // tensors of other parts than the language model (language_model.hpp)
};

// "a.b" of "a.b.weight"
inline std::string_view module_of(std::string_view tensor) { return tensor.substr(0, tensor.rfind('.')); }

// model.safetensors, else the files that model.safetensors.index.json names, else every *.safetensors. Checks
// all headers; fails with ExitCode::input.
WeightIndex read_index(const ModelFiles& files);

// The tensors of one safetensors file of a packed model of file_size bytes; their file is 0. Checked like a header.
IndexedTensors packed_tensors(const ModelFiles& files, std::string_view name, uint64_t file_size);

// For the broadcast to the other ranks.
std::string to_bytes(const WeightIndex& index);
WeightIndex index_from(std::string_view bytes);

}  // namespace maniple
