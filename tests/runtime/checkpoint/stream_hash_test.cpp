#include <runtime/checkpoint/stream_hash.hpp>

#include <gtest/gtest.h>

#include <xxhash.h>

#include <algorithm>
#include <random>
#include <vector>

namespace maniple {
namespace {

// The library's functions for a whole text, which no processor-dependent code of ours chooses.
TEST(StreamHash, IsThatOfTheWholeForAnyParts) {
  std::mt19937 random(5);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{240}, size_t{241}, size_t{100'000}}) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    for (const HashKind kind : {HashKind::xxh64, HashKind::xxh3}) {
      StreamHash hash(kind);
      for (size_t at = 0; at < size;) {
        const size_t part = std::min<size_t>(1 + random() % 3000, size - at);
        hash.add(std::span(bytes).subspan(at, part));
        at += part;
      }
      EXPECT_EQ(hash.value(),
                kind == HashKind::xxh64 ? XXH64(bytes.data(), size, 0) : XXH3_64bits(bytes.data(), size))
          << size;
    }
  }
}

}  // namespace
}  // namespace maniple
