#include <runtime/tokenizer/bpe.hpp>

#include <algorithm>
#include <kernels/support/check.hpp>
#include <runtime/text/utf8.hpp>

namespace maniple {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

// The heap's top is the lowest rank, then the leftmost position. A lambda, because it is then inlined.
constexpr auto is_later = [](const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
};

void append_symbol(Bpe::Scratch& scratch, int32_t id) {
  const auto index = static_cast<int32_t>(scratch.symbols.size());
  scratch.symbols.push_back({id, index - 1, index + 1, false});
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  if (options_.byte_fallback)
    for (int byte = 0; byte < 256; ++byte)
      byte_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) add_merge(merges[rank], static_cast<int32_t>(rank));
}

Bpe::Bpe(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  options_.ignore_merges = true;
  for (int32_t id = 0; id < vocabulary_.id_end(); ++id) {
    const std::string_view token = vocabulary_.text(id).value_or("");
    for (size_t cut = 0; cut < token.size(); cut += character_at(token, cut).size())
      if (const auto left = vocabulary_.find(token.substr(0, cut)),
          right = vocabulary_.find(token.substr(cut));
          left && right)
        merges_.emplace(pair_key(*left, *right), RankedMerge{id, id});
  }
}

void Bpe::add_merge(const Merge& merge, int32_t rank) {
  const auto id_of = [&](std::string_view token) {
    const auto id = vocabulary_.find(token);
    if (!id)
      fail(ExitCode::input,
           "tokenizer: merge {} ('{}' with '{}') needs the token '{}', which is not in the vocabulary", rank,
           merge.first, merge.second, token);
    return *id;
  };
  const auto result = id_of(std::string(merge.first).append(merge.second));
  merges_.insert_or_assign(pair_key(id_of(merge.first), id_of(merge.second)), RankedMerge{rank, result});
}

const Bpe::RankedMerge* Bpe::find_merge(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges)
    if (const auto id = vocabulary_.find(piece)) return ids.push_back(*id);
  start_symbols(piece, scratch);
  if (scratch.symbols.empty()) return;
  scratch.symbols.back().next = -1;
  merge_symbols(scratch);
  for (int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<size_t>(i)].next)
    ids.push_back(scratch.symbols[static_cast<size_t>(i)].id);
}

// An unknown token is appended before the next known character, and so after byte tokens in between, as in
// Hugging Face's library.
void Bpe::start_symbols(std::string_view piece, Scratch& scratch) const {
  scratch.symbols.clear();
  std::optional<int32_t> unknown;
  for (size_t position = 0; position < piece.size();) {
    const auto character = character_at(piece, position);
    position += character.size();
    const auto id = vocabulary_.find(character);
    if (!id && add_bytes(character, scratch)) continue;
    if (!id && !options_.unk_token) continue;
    if (unknown && (id || !options_.fuse_unk)) append_symbol(scratch, *unknown);
    unknown = id ? std::nullopt : std::optional(unk_id());
    if (id) append_symbol(scratch, *id);
  }
  if (unknown) append_symbol(scratch, *unknown);
}

bool Bpe::add_bytes(std::string_view character, Scratch& scratch) const {
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (!std::ranges::all_of(character, [&](char byte) { return id_of(byte).has_value(); })) return false;
  for (const char byte : character) append_symbol(scratch, *id_of(byte));
  return true;
}

int32_t Bpe::unk_id() const {
  const auto id = vocabulary_.find(*options_.unk_token);
  if (!id)
    fail(ExitCode::input, "tokenizer: the unknown token '{}' is not in the vocabulary", *options_.unk_token);
  return *id;
}

void Bpe::offer_merge(int32_t left, Scratch& scratch) const {
  const auto& symbol = scratch.symbols[static_cast<size_t>(left)];
  if (symbol.next < 0) return;
  if (const auto* merge = find_merge(symbol.id, scratch.symbols[static_cast<size_t>(symbol.next)].id))
    scratch.candidates.push_back({merge->rank, left, merge->id});
}

void Bpe::merge_symbols(Scratch& scratch) const {
  auto& heap = scratch.candidates;
  heap.clear();
  for (size_t i = 0; i < scratch.symbols.size(); ++i) offer_merge(static_cast<int32_t>(i), scratch);
  std::ranges::make_heap(heap, is_later);
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, is_later);
    const auto candidate = heap.back();
    heap.pop_back();
    merge_candidate(candidate, scratch);
  }
}

// A candidate may be out of date: another merge may have used its symbols.
void Bpe::merge_candidate(const Scratch::Candidate& candidate, Scratch& scratch) const {
  const auto symbol_at = [&](int32_t index) -> Scratch::Symbol& {
    return scratch.symbols[static_cast<size_t>(index)];
  };
  const auto offer = [&](int32_t left) {
    const auto count = scratch.candidates.size();
    offer_merge(left, scratch);
    if (scratch.candidates.size() > count) std::ranges::push_heap(scratch.candidates, is_later);
  };
  auto& left = symbol_at(candidate.position);
  if (left.is_merged_away || left.next < 0) return;
  auto& right = symbol_at(left.next);
  const auto* merge = find_merge(left.id, right.id);
  if (merge == nullptr || merge->id != candidate.id) return;
  left.id = candidate.id;
  left.next = right.next;
  right.is_merged_away = true;
  if (left.next >= 0) symbol_at(left.next).previous = candidate.position;
  if (left.previous >= 0) offer(left.previous);
  offer(candidate.position);
}

}  // namespace maniple
