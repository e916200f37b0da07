#include <runtime/text/utf8.hpp>
#include <runtime/tokenizer/added_tokens.hpp>

#include <unicode/uchar.h>

#include <algorithm>

namespace maniple {
namespace {

// \w and \s of the Rust crate regex.
bool is_word(char32_t character) {
  const auto c = static_cast<UChar32>(character);
  return u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}
bool is_space(char32_t character) { return u_isUWhiteSpace(static_cast<UChar32>(character)); }

size_t start_of_last_character(std::string_view text) {
  size_t start = text.size() - 1;
  while (continues_character(text[start])) --start;
  return start;
}

char32_t first_character(std::string_view text) {
  size_t position = 0;
  return next_code_point(text, position);
}
char32_t last_character(std::string_view text) {
  return first_character(text.substr(start_of_last_character(text)));
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !is_word(last_character(text.substr(0, begin)))) &&
         (end == text.size() || !is_word(first_character(text.substr(end))));
}

size_t without_space_before(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit && is_space(last_character(text.substr(0, begin))))
    begin = start_of_last_character(text.substr(0, begin));
  return begin;
}

size_t without_space_after(std::string_view text, size_t end) {
  while (end < text.size() && is_space(first_character(text.substr(end)))) next_code_point(text, end);
  return end;
}

}  // namespace

void AddedTokenFinder::add(const std::string& pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  patterns_.emplace(pattern, token);
  lengths_[static_cast<unsigned char>(pattern[0])].insert(pattern.size());
}

const AddedTokenFinder::Patterns::value_type* AddedTokenFinder::longest_at(std::string_view text,
                                                                           size_t position) const {
  for (const size_t length : lengths_[static_cast<unsigned char>(text[position])])
    if (const auto found = patterns_.find(text.substr(position, length)); found != patterns_.end())
      return &*found;
  return nullptr;
}

std::vector<Section> AddedTokenFinder::split(std::string_view text) const {
  std::vector<Section> sections;
  size_t covered = 0;
  const auto emit = [&](size_t begin, size_t end, std::optional<int32_t> id) {
    sections.push_back({text.substr(begin, end - begin), begin, id});
  };
  for (size_t position = 0; position < text.size();) {
    const auto* match = longest_at(text, position);
    if (match == nullptr) {
      ++position;
      continue;
    }
    const auto& [pattern, token] = *match;
    auto begin = position, end = position + pattern.size();
    position = end;
    if (token.is_single_word && !stands_alone(text, begin, end)) continue;
    if (token.strips_left) begin = std::max(without_space_before(text, begin, covered), covered);
    if (token.strips_right) end = without_space_after(text, std::max(end, covered));
    if (begin >= end) continue;  // the previous token took it as white space
    if (covered < begin) emit(covered, begin, std::nullopt);
    emit(begin, end, token.id);
    covered = end;
  }
  if (covered < text.size()) emit(covered, text.size(), std::nullopt);
  return sections;
}

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer) {
  std::map<int32_t, AddedToken> last_of_id;
  std::set<std::string, std::less<>> special;
  for (const auto& token : tokens) {
    last_of_id.insert_or_assign(token.id, token);
    by_content_.insert_or_assign(token.content, token.id);
    if (token.is_special) special.insert(token.content);
  }
  for (const auto& [id, token] : last_of_id) {
    const auto form = token.is_normalized ? normalizer.normalize(token.content) : token.content;
    (token.is_normalized ? in_normalized_text_ : in_raw_text_).add(form, token);
    by_id_[id] = {form, special.contains(form)};
  }
}

std::optional<int32_t> AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string_view> AddedTokens::text(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? std::nullopt : std::optional<std::string_view>(found->second.text);
}

bool AddedTokens::is_special(int32_t id) const {
  const auto found = by_id_.find(id);
  return found != by_id_.end() && found->second.is_special;
}

}  // namespace maniple
