// Byte-pair encoding (Sennrich et al., arXiv 1508.07909): starts from the characters of a piece and
// repeatedly merges the pair of lowest rank, leftmost first, with the details of Hugging Face's models/bpe.
// O(n log n) in the length of a piece: a heap of possible merges over a linked list of symbols.
#pragma once

#include <kernels/support/split_mix.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <runtime/tokenizer/vocabulary.hpp>

namespace maniple {

struct BpeOptions {
  std::optional<std::string> unk_token;  // for characters without a token; absent: they are dropped
  bool fuse_unk = false;                 // neighbouring unknown characters become one token
  bool byte_fallback = false;            // tokens <0x00>..<0xFF> before unk_token
  bool ignore_merges = false;            // a piece that is a token stays whole
};

class Bpe {
 public:
  using Merge = std::pair<std::string_view, std::string_view>;

  // Throws Error (input) when a merge names a token that is not there.
  Bpe(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options);
  // As tiktoken: any two tokens that make up a third one merge, ranked by its id; a piece that is a token stays whole.
  explicit Bpe(Vocabulary vocabulary);

  // Memory that encode() reuses for the pieces of one text.
  struct Scratch {
    struct Symbol {
      int32_t id, previous, next;  // neighbours in the list; -1: none
      bool is_merged_away;
    };
    struct Candidate {
      int32_t rank, position, id;  // of the merge, of its left symbol, of its result
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> candidates;
  };

  // Appends the ids of a piece (valid UTF-8, not empty, less than 2 GiB).
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct RankedMerge {
    int32_t rank, id;
  };
  struct PairHash {
    size_t operator()(uint64_t pair) const { return split_mix(pair); }
  };

  void add_merge(const Merge& merge, int32_t rank);
  const RankedMerge* find_merge(int32_t left, int32_t right) const;
  void start_symbols(std::string_view piece, Scratch& scratch) const;
  bool add_bytes(std::string_view character, Scratch& scratch) const;
  int32_t unk_id() const;
  void offer_merge(int32_t left, Scratch& scratch) const;
  void merge_symbols(Scratch& scratch) const;
  void merge_candidate(const Scratch::Candidate& candidate, Scratch& scratch) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  std::array<std::optional<int32_t>, 256> byte_ids_;
  std::unordered_map<uint64_t, RankedMerge, PairHash> merges_;  // by the ids of both halves
};

}  // namespace maniple
