#include <parallel/shard.hpp>

#include <algorithm>
#include <numeric>

namespace maniple {

Indivisible::Indivisible(const char* its_dimension, int64_t its_size, int its_parts)
    : Error(ExitCode::input,
            fmt::format("{} ({}) do not divide by tensor ranks ({})", its_dimension, its_size, its_parts)),
      dimension(its_dimension),
      size(its_size),
      parts(its_parts) {}

std::vector<int> small_divisors(int64_t n) {
  std::vector<int> divisors;
  for (int d = 1; d <= 64 && d <= n && divisors.size() < 8; ++d)
    if (n % d == 0) divisors.push_back(d);
  return divisors;
}

IndexRange even_shard(int64_t size, int parts, int part, const char* what) {
  require(0 <= part && part < parts, "a part outside the group");
  if (size % parts != 0) throw Indivisible(what, size, parts);
  const int64_t width = size / parts;
  return {part * width, (part + 1) * width};
}

IndexRange balanced_shard(int64_t size, int parts, int part) {
  require(0 <= part && part < parts, "a part outside the group");
  return {size * part / parts, size * (part + 1) / parts};
}

std::vector<int64_t> kv_head_shard(int64_t heads, int64_t kv_heads, int parts, int part) {
  if (parts <= kv_heads) even_shard(kv_heads, parts, part, "kv heads");
  const int64_t group = heads / kv_heads, first = part * (heads / parts), end = first + heads / parts;
  const int64_t shared = std::gcd(group, heads / parts);  // query heads of a local KV head
  std::vector<int64_t> held;
  for (int64_t head = first; head < end; head += shared) held.push_back(head / group);
  return held;
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
