// The bytes of a file from its beginning; unpacks gzip and Zstandard.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>

namespace maniple {

// Fails (input): "cannot open prompts.jsonl: No such file or directory", by errno.
[[noreturn]] void fail_to(const char* act, const std::string& name);
// As many bytes as there are at the offset, at most as fit into the part. Fails (input) if it cannot read.
size_t read_at(int descriptor, off_t offset, std::span<char> part, const std::string& name);

class Unpacker {
 public:
  virtual ~Unpacker() = default;
  // Reads as many bytes as fit into the part; fewer only at the end.
  // Fails (input), naming the file, if it cannot be read or unpacked.
  virtual size_t read(std::span<char> part) = 0;
};

// Chooses by the first bytes of the file. The caller keeps the descriptor, which must outlive this.
std::unique_ptr<Unpacker> open_unpacker(int descriptor, const std::string& name);

}  // namespace maniple
