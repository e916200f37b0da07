// The header of a file in the safetensors format: its length (8 bytes, little endian), JSON, and then the
// tensors back to back. The format and its rules: https://github.com/huggingface/safetensors#format
#pragma once

#include <runtime/checkpoint/weight_index.hpp>

namespace maniple {

constexpr uint64_t max_header_bytes = 100'000'000;  // the format's own limit

struct StoredTensor {
  TensorInfo info;
  uint64_t offset = 0;  // of its first byte: row major, dense
};
using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;  // by name

// Validates everything: types, shapes, sizes and offsets must agree, and the tensors must fill data_bytes
// without overlap or hole. where: the file's name for messages. Offsets count from the end of the header.
// Fails with ExitCode::input.
StoredTensors parse_safetensors_header(std::string_view header, uint64_t data_bytes, std::string_view where);

// The same for a file; offsets count from its first byte. size: of the file, where `file` is its header alone.
StoredTensors read_safetensors_header(const InputFile& file, std::optional<uint64_t> size = {});

// Absent for a stored type that cannot be read here.
std::optional<DType> dtype_of(std::string_view stored_type);
// Absent for an unknown type.
std::optional<uint64_t> item_bytes_of(std::string_view stored_type);

}  // namespace maniple
