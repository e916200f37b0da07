// What tells copies of a weight file on different nodes apart, without reading them whole.
#pragma once

#include <runtime/checkpoint/input_file.hpp>

namespace maniple {

// Hashes (XXH64): of a safetensors file's header, and of samples: four of 64 KiB, or one of 4 KiB of a file
// below 64 MiB.
struct FilePrint {
  uint64_t size = 0, header = 0, samples = 0;
  bool operator==(const FilePrint&) const = default;
};

// Of a safetensors file's header, with the length that the file begins with. Believes nothing: never more
// than the file has, or than a header may have.
uint64_t header_bytes(const InputFile& file);

// Believes nothing: a file of any content has a print. Fails (input) when it cannot be read.
FilePrint print_of(const InputFile& file);

// As it was seen by the rank that made the index.
struct IndexedFile {
  std::filesystem::path path;
  FilePrint print;
  bool operator==(const IndexedFile&) const = default;
};

// Fails (input) also where what is there now, on this node, is another file.
InputFile open_same(const IndexedFile& file);

}  // namespace maniple
