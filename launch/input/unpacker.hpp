// The bytes of a file from its beginning, unpacked where it is gzip or Zstandard.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace maniple {

class Unpacker {
 public:
  virtual ~Unpacker() = default;
  // As many bytes as fit into the part; fewer only at the end. Fails (input) when the file cannot be read or
  // unpacked, naming it.
  virtual size_t read(std::span<char> part) = 0;
};

// What the file is, its first bytes say. The descriptor stays the caller's, and must outlive this.
std::unique_ptr<Unpacker> open_unpacker(int descriptor, const std::string& name);

}  // namespace maniple
