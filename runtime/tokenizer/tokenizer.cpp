#include <runtime/tokenizer/tokenizer.hpp>

#include <algorithm>
#include <kernels/support/check.hpp>
#include <limits>
#include <runtime/checkpoint/token_settings.hpp>
#include <runtime/text/utf8.hpp>
#include <runtime/tokenizer/incremental_detokenizer.hpp>
#include <runtime/tokenizer/tokenizer_components.hpp>

namespace maniple {

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view where) {
  return from_json(json, where, {});
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view where,
                               const TokenSettings& settings) try {
  return Tokenizer(parse_tokenizer_json(json, settings));
} catch (const Error& error) {
  if (where.empty()) throw;
  throw Error(error.code(), fmt::format("{} (in '{}')", error.what(), where), error.why(), error.remedy());
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
  for (const auto& section : parts_->added_tokens.in_raw_text().split(text)) {
    if (section.id)
      ids.push_back(*section.id);
    else
      encode_section(section.text, section.begin == 0, ids);
  }
  const auto& after = parts_->special_tokens.after;
  if (add_special_tokens) ids.insert(ids.end(), after.begin(), after.end());
  return ids;
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
  const auto added = parts_->added_tokens.find(token);
  return added ? added : parts_->model.vocabulary().find(token);
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
