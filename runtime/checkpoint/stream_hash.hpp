// XXH64 of bytes that come in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct XXH64_state_s;

namespace maniple {

class StreamHash {
 public:
  StreamHash();
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;  // of all so far

 private:
  struct Free {
    void operator()(XXH64_state_s* state) const;
  };
  std::unique_ptr<XXH64_state_s, Free> state_;
};

}  // namespace maniple
