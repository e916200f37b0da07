// Checksums of bytes that come in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>

struct XXH64_state_s;
struct XXH3_state_s;

namespace maniple {

enum class HashKind : uint8_t { xxh64, xxh3 };  // xxh3: its 64 bits, several times as fast; both with seed 0

struct Checksum {
  uint64_t value = 0;
  HashKind kind = HashKind::xxh3;
  bool operator==(const Checksum&) const = default;
};

class StreamHash {
 public:
  explicit StreamHash(HashKind kind);
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;  // of all so far

 private:
  struct Free {
    void operator()(XXH64_state_s* state) const;
    void operator()(XXH3_state_s* state) const;
  };
  std::variant<std::unique_ptr<XXH64_state_s, Free>, std::unique_ptr<XXH3_state_s, Free>> state_;
};

}  // namespace maniple
