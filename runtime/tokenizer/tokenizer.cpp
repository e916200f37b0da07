#include <runtime/tokenizer/tokenizer.hpp>

#include <unicode/uchar.h>
#include <algorithm>
#include <kernels/support/check.hpp>
#include <limits>
#include <runtime/checkpoint/token_settings.hpp>
#include <runtime/text/utf8.hpp>
#include <runtime/tokenizer/incremental_detokenizer.hpp>
#include <runtime/tokenizer/tokenizer_components.hpp>

namespace maniple {

namespace {

using Parts = std::unique_ptr<const TokenizerComponents>;

Parts parsed(Parts (*parse)(std::string_view, const TokenSettings&), std::string_view text,
             std::string_view where, const TokenSettings& settings) try {
  return parse(text, settings);
} catch (const Error& error) {
  if (where.empty()) throw;
  throw Error(error.code(), fmt::format("{} (in '{}')", error.what(), where), error.why(), error.remedy());
}

// str.isspace of Python.
bool is_blank(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)) || (c >= 0x1c && c <= 0x1f); }

// The text in parts within the limits; runs are counted anew in each `limits.text` characters.
std::vector<std::string_view> parts_within(const TextLimits& limits, std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0, characters = 0, run = 0;
  bool blank = false;
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    const bool is = is_blank(next_code_point(text, position));
    const bool full = characters == limits.text;
    if (full) characters = 0;
    run = full || is != blank ? 1 : run + 1;
    blank = is;
    ++characters;
    if (!full && run <= limits.run) continue;
    parts.push_back(text.substr(begin, start - begin));
    begin = start;
    run = 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view where) {
  return from_json(json, where, {});
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view where, const TokenSettings& settings) {
  return Tokenizer(parsed(parse_tokenizer_json, json, where, settings));
}

Tokenizer Tokenizer::from_tiktoken(std::string_view text, std::string_view where,
                                   const TokenSettings& settings) {
  return Tokenizer(parsed(parse_tiktoken, text, where, settings));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  // Normalisation and the byte alphabet lengthen text; positions within a piece are 32 bits.
  constexpr size_t longest_text = std::numeric_limits<int32_t>::max() / 32;
  if (text.size() > longest_text)
    fail(ExitCode::input, "tokenizer: text of {} bytes; the longest allowed has {}", text.size(),
         longest_text);
  if (const auto invalid = first_invalid_utf8(text); invalid != std::string_view::npos)
    fail(ExitCode::input, "tokenizer: invalid UTF-8 at byte {}", invalid);
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = parts_->special_tokens.before;
  const std::vector<std::string_view> parts =
      parts_->limits ? parts_within(*parts_->limits, text) : std::vector{text};
  for (const std::string_view part : parts) encode_part(part, part.data() == text.data(), ids);
  const auto& after = parts_->special_tokens.after;
  if (add_special_tokens) ids.insert(ids.end(), after.begin(), after.end());
  return ids;
}

void Tokenizer::encode_part(std::string_view text, bool opens_input, std::vector<int32_t>& ids) const {
  for (const auto& section : parts_->added_tokens.in_raw_text().split(text)) {
    if (section.id)
      ids.push_back(*section.id);
    else
      encode_section(section.text, opens_input && section.begin == 0, ids);
  }
}

void Tokenizer::encode_section(std::string_view text, bool opens_input, std::vector<int32_t>& ids) const {
  const auto normal = parts_->normalizer.normalize(std::string(text));
  Bpe::Scratch scratch;
  const auto encode_piece = [&](std::string_view piece) { parts_->model.encode(piece, scratch, ids); };
  for (const auto& section : parts_->added_tokens.in_normalized_text().split(normal)) {
    if (section.id)
      ids.push_back(*section.id);
    else
      parts_->pre_tokenizer.split(section.text, opens_input && section.begin == 0, encode_piece);
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  IncrementalDetokenizer detokenizer(*this, skip_special_tokens);
  std::string text;
  for (const auto id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
  const auto added = added_token_id(token);
  return added ? added : parts_->model.vocabulary().find(token);
}

std::optional<int32_t> Tokenizer::added_token_id(std::string_view token) const {
  return parts_->added_tokens.find(token);
}

size_t Tokenizer::vocab_size() const {
  return static_cast<size_t>(std::max(parts_->model.vocabulary().id_end(), parts_->added_tokens.id_end()));
}

bool Tokenizer::is_special(int32_t id) const { return parts_->added_tokens.is_special(id); }

std::optional<std::string_view> Tokenizer::token_text(int32_t id) const {
  const auto added = parts_->added_tokens.text(id);
  return added ? added : parts_->model.vocabulary().text(id);
}

DecoderStream Tokenizer::open_decoder() const { return DecoderStream(parts_->decoder); }

}  // namespace maniple
