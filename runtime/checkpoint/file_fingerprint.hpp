// A fingerprint that tells copies of a weight file on different nodes apart, without reading them whole.
#pragma once

#include <runtime/checkpoint/input_file.hpp>

namespace maniple {

// Bytes, and hashes (XXH64) of a safetensors file's header (of a packed model's user block) and of samples: four of 64 KiB, or one of 4 KiB in
// a file below 64 MiB.
struct FileFingerprint {
  uint64_t size = 0, header = 0, samples = 0;
  bool operator==(const FileFingerprint&) const = default;
};

// The size of a safetensors file's header, with the length field before it; of a packed model's user block. For a file of
// any content; at most the file's size, and at most what the format allows.
uint64_t header_bytes(const InputFile& file);

// A file of any content has a print. Throws Error (input) when it cannot be read.
FileFingerprint fingerprint_of(const InputFile& file);

// A file as the rank that made the index read it.
struct IndexedFile {
  std::filesystem::path path;
  FileFingerprint print;
  bool operator==(const IndexedFile&) const = default;
};

// Opens the file. Throws Error (input) also if this node has another file at the path.
InputFile open_same(const IndexedFile& file);

}  // namespace maniple
