#include <runtime/tokenizer/vocabulary.hpp>

#include <algorithm>
#include <kernels/support/check.hpp>

namespace maniple {

Vocabulary::Vocabulary(std::vector<std::pair<std::string, int64_t>>&& tokens) {
  const int64_t limit = 4 * std::ssize(tokens) + 65536;  // how far ids may lie beyond the number of tokens
  int64_t end = 0;
  for (const auto& [token, id] : tokens) {
    if (id < 0 || id > limit)
      fail(ExitCode::input, "tokenizer: token '{}' has id {}; the ids of {} tokens must lie in 0..{}", token,
           id, tokens.size(), limit);
    end = std::max(end, id + 1);
  }
  texts_.resize(static_cast<size_t>(end));
  is_used_.resize(texts_.size());
  ids_.reserve(tokens.size());
  for (auto& [token, id] : tokens) {
    const auto index = static_cast<size_t>(id);
    if (is_used_[index])
      fail(ExitCode::input, "tokenizer: tokens '{}' and '{}' share the id {}", texts_[index], token, id);
    is_used_[index] = true;
    texts_[index] = std::move(token);
    ids_.emplace(texts_[index], static_cast<int32_t>(id));
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string_view> Vocabulary::text(int32_t id) const {
  if (id < 0 || id >= id_end() || !is_used_[static_cast<size_t>(id)]) return std::nullopt;
  return texts_[static_cast<size_t>(id)];
}

}  // namespace maniple
