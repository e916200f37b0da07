// The tokens of a model and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace maniple {

class Vocabulary {
 public:
  // Throws Error (input) unless ids are distinct, not negative and not far beyond the number of tokens, which
  // bounds the memory by the file's size.
  explicit Vocabulary(std::vector<std::pair<std::string, int64_t>>&& tokens);
  Vocabulary(Vocabulary&&) = default;  // moving keeps the addresses that the keys of ids_ use

  std::optional<int32_t> find(std::string_view token) const;
  std::optional<std::string_view> text(int32_t id) const;  // absent for an id without a token
  size_t token_count() const { return ids_.size(); }
  int32_t id_end() const { return static_cast<int32_t>(texts_.size()); }  // largest id + 1

 private:
  std::vector<std::string> texts_;  // by id
  std::vector<bool> is_used_;       // by id
  std::unordered_map<std::string_view, int32_t> ids_;
};

}  // namespace maniple
