// The header of a file in the safetensors format: its length (8 bytes, little endian), JSON, and then the
// tensors back to back. The format and its rules: https://github.com/huggingface/safetensors#format
#pragma once

#include <runtime/checkpoint/weight_index.hpp>

namespace maniple {

// Validates everything: types, shapes, sizes and offsets must agree, and the tensors must fill data_bytes
// without overlap or hole. where: the file's name for messages. Offsets count from the end of the header.
// Fails with ExitCode::input.
StoredTensors parse_safetensors_header(std::string_view header, uint64_t data_bytes, std::string_view where);

// The same for a file; offsets count from its first byte.
StoredTensors read_safetensors_header(const InputFile& file);

// Absent for a stored type that cannot be read here.
std::optional<DType> dtype_of(std::string_view stored_type);

}  // namespace maniple
