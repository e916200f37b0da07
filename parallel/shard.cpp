#include <parallel/divisors.hpp>
#include <parallel/shard.hpp>

#include <algorithm>
#include <numeric>

namespace maniple {

namespace {

[[noreturn]] void refuse(const char* what, int64_t size, int parts) {
  fail(ExitCode::input, "{} ({}) do not divide by tensor ranks ({}); use --tp {}", what, size, parts,
       alternatives(small_divisors(size)));
}

}  // namespace

IndexRange even_shard(int64_t size, int parts, int part, const char* what) {
  require(0 <= part && part < parts, "a part outside the group");
  if (size % parts != 0) refuse(what, size, parts);
  const int64_t width = size / parts;
  return {part * width, (part + 1) * width};
}

IndexRange kv_head_shard(int64_t kv_heads, int parts, int part) {
  if (parts <= kv_heads) return even_shard(kv_heads, parts, part, "kv heads");
  require(0 <= part && part < parts, "a part outside the group");
  if (parts % kv_heads != 0) refuse("kv heads", kv_heads, parts);
  const int64_t head = part / (parts / kv_heads);
  return {head, head + 1};
}

int64_t padded_vocabulary(int64_t vocabulary_size, int parts) {
  const int64_t step = std::lcm<int64_t>(64, parts);
  return (vocabulary_size + step - 1) / step * step;
}

VocabularyShard vocabulary_shard(int64_t vocabulary_size, int parts, int part) {
  const IndexRange padded = even_shard(padded_vocabulary(vocabulary_size, parts), parts, part, "vocabulary");
  return {padded, {std::min(padded.begin, vocabulary_size), std::min(padded.end, vocabulary_size)}};
}

ReductionSlices reduction_slices(int64_t columns, int parts) {
  const int total = static_cast<int>(std::gcd(columns, int64_t{8}));
  if (total % parts == 0) return {total, total / parts, true};
  return {parts, 1, false};
}

}  // namespace maniple
