// The index of a packed model: one HDF5 file, with a user block before it that leads to a JSON text of our own. The text says
// where everything lies, so that reading a model never calls the HDF5 library.
#pragma once

#include <runtime/checkpoint/input_file.hpp>
#include <runtime/checkpoint/stream_hash.hpp>

#include <array>
#include <map>
#include <string_view>
#include <vector>

namespace maniple {

// The one subfolder of a model's directory with files of the model.
constexpr std::string_view templates_folder = "additional_chat_templates/";

constexpr uint64_t user_block_bytes = 4096;
constexpr std::array<char, 8> packed_magic{'\x89', 'M', 'P', 'L', '\r', '\n', '\x1a', '\n'};
// 1.1: XXH3 of chunks. 1.0 has XXH64.
constexpr uint32_t packed_major = 1, packed_minor = 1;

// Limits of an index, far above those of the largest models: bytes of its text, values in it (which take up to some 150 bytes of
// memory each while the text is parsed), bytes of a name.
constexpr uint64_t max_index_bytes = 100'000'000, max_index_values = 4'000'000, max_name_bytes = 255;

// A range of the packed file, and its XXH64.
struct PackedBytes {
  uint64_t offset = 0, size = 0, hash = 0;
};

// A tensor as a matrix (matrix_of), cut into chunks of one size, row by row. A chunk at an edge is stored whole; its hash is
// that of the rows that it holds.
struct PackedTensor {
  int64_t chunk_rows = 0, chunk_columns = 0;
  std::vector<int64_t> offsets;
  std::vector<uint64_t> hashes;
  HashKind hashed_by = HashKind::xxh3;
};

struct PackedTensors {  // a safetensors file
  uint64_t size = 0;    // of the original
  PackedBytes header;   // as it was, with the length before it
  std::map<std::string, PackedTensor, std::less<>> tensors;
};

struct PackedIndex {
  std::map<std::string, PackedBytes, std::less<>> files;  // as they were
  std::map<std::string, PackedTensors, std::less<>> safetensors;
};

// Checks the user block and the hash of the text, and that files and headers lie inside the file. What it says of tensors is
// checked by extents_of, against their shapes. Fails with ExitCode::input: "m.h5 is no model file: ...".
PackedIndex read_packed_index(const InputFile& file);

// For the writer. A text of the same index with other offsets and hashes has at most longest_json bytes.
std::string to_json(const PackedIndex& index);
uint64_t longest_json(const PackedIndex& index);
// Fails (input) where the text is none, or passes a limit.
PackedIndex packed_index_from(std::string_view json, std::string_view where, uint64_t file_size);
std::string user_block_of(uint64_t file_size, const PackedBytes& json);

// "m.h5: config.json: the checksum differs", and what to type.
[[noreturn]] void refuse_checksum(const std::string& packed, const std::string& part);

}  // namespace maniple
