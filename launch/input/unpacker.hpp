// The bytes of a file from its beginning; unpacks gzip and Zstandard.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace maniple {

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
