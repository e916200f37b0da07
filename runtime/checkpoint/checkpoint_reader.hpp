// Named tensors on disk, read a box at a time: no rank needs more memory than the slice it asks for.
#pragma once

#include <kernels/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

struct TensorInfo {
  std::string stored_type;     // as the file calls it: "BF16"
  std::optional<DType> dtype;  // empty: a type that cannot be read here
  std::vector<int64_t> shape;  // outermost dimension first; empty: a scalar
  uint64_t byte_size = 0;
};

class CheckpointReader {
 public:
  virtual ~CheckpointReader() = default;
  virtual std::vector<std::string> names() const = 0;  // sorted
  // nullptr: no such tensor. Lives as long as the reader.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  // Copies the box [begin, begin + extent) of a tensor of at most two dimensions, row major and dense, into
  // out, which has exactly its bytes. Any number of threads may read at once. Fails with ExitCode::input for
  // an unknown name, a type that is not a DType, a box outside the tensor, and a file that cannot be read to
  // the end.
  virtual void read(std::string_view name, std::span<const int64_t> begin, std::span<const int64_t> extent,
                    std::span<std::byte> out) const = 0;
};

// A directory in the Hugging Face layout: the files that model.safetensors.index.json names, else
// model.safetensors, else every
// *.safetensors. Checks all headers; fails with ExitCode::input.
std::unique_ptr<CheckpointReader> open_checkpoint(const std::filesystem::path& directory);

}  // namespace maniple
