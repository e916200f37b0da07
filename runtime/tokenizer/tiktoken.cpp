// tiktoken.model as Moonshot AI publishes it with Kimi-K2: ranks of byte sequences, which are token ids too. Pattern, limits and reserved
// tokens are those of the Python file beside it (tokenization_kimi.py).
#include <kernels/support/check.hpp>
#include <runtime/checkpoint/token_settings.hpp>
#include <runtime/tokenizer/oniguruma.hpp>
#include <runtime/tokenizer/tokenizer_components.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace maniple {
namespace {

constexpr int32_t special_count = 256;
constexpr size_t longest_token = 1024;  // bytes: every cut of a token is looked up

// The classes are written [...&&[^\p{Han}]] there, which PCRE2 lacks.
constexpr std::string_view kimi_pattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Empty where it is no base64 with its padding.
std::string from_base64(std::string_view text) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return {};
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = digits.find(text[i]);
    if (digit == digits.npos) return {};
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (i % 4 != 0) bytes += static_cast<char>(bits >> (6 - 2 * (i % 4)));
  }
  return bytes;
}

// "SGVsbG8= 9906" -> {"Hello", 9906}
std::optional<std::pair<std::string, int64_t>> ranked_token(std::string_view line) {
  const size_t space = std::min(line.find(' '), line.size());
  std::string token = from_base64(line.substr(0, space));
  const std::string_view digits = line.substr(std::min(space + 1, line.size()));
  int64_t rank = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (token.empty() || token.size() > longest_token || error != std::errc() ||
      end != digits.data() + digits.size() || rank < 0)
    return std::nullopt;
  return std::pair(std::move(token), rank);
}

// Tokens as GPT-2's characters, each with its rank as id.
Vocabulary parse_ranks(std::string_view text) {
  const ByteAlphabet alphabet;
  std::vector<std::pair<std::string, int64_t>> tokens;
  std::map<int64_t, size_t> line_of_rank;
  std::set<std::string> seen;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    auto entry = ranked_token(line);
    if (!entry)
      fail(ExitCode::input,
           "tokenizer: line {} is not a token of up to {} bytes in base64, a space and its rank", number,
           longest_token);
    const auto [first, is_new] = line_of_rank.emplace(entry->second, number);
    if (!is_new)
      fail(ExitCode::input, "tokenizer: lines {} and {} give the rank {} twice", first->second, number,
           entry->second);
    if (!seen.insert(entry->first).second)
      fail(ExitCode::input, "tokenizer: the token of line {} stands on a line before it too", number);
    tokens.emplace_back(alphabet.to_characters(entry->first), entry->second);
  }
  for (int byte = 0; byte < 256; ++byte)
    if (!seen.contains(std::string(1, static_cast<char>(byte))))
      fail(ExitCode::input, "tokenizer: there is no token of the byte {}; is the download complete?", byte);
  if (line_of_rank.rbegin()->first != static_cast<int64_t>(tokens.size()) - 1)
    fail(ExitCode::input, "tokenizer: {} tokens have ranks up to {}; is the download complete?",
         tokens.size(), line_of_rank.rbegin()->first);
  return Vocabulary(std::move(tokens));
}

// The 256 ids behind the ranks.
std::vector<AddedToken> special_tokens(int32_t begin, const TokenSettings& settings) {
  std::vector<AddedToken> tokens;
  for (int32_t id = begin; id < begin + special_count; ++id)
    tokens.push_back({.content = fmt::format("<|reserved_token_{}|>", id), .id = id, .is_special = true});
  for (const auto& [id, token] : settings.added) {
    if (id < begin || id >= begin + special_count)
      fail(ExitCode::input,
           "tokenizer: tokenizer_config.json gives '{}' the id {}, but special tokens have the {} ids from "
           "{} on",
           token.content, id, special_count, begin);
    AddedToken& reserved = tokens[static_cast<size_t>(id - begin)];
    reserved.content = token.content;
    reserved.is_special = token.special || settings.names(token.content);
  }
  return tokens;
}

}  // namespace

std::unique_ptr<const TokenizerComponents> parse_tiktoken(std::string_view text,
                                                          const TokenSettings& settings) {
  Bpe model(parse_ranks(text));
  AddedTokens added(special_tokens(model.vocabulary().id_end(), settings), Normalizer());
  std::vector<PreTokenizerStep> steps;
  steps.emplace_back(Split{oniguruma_pattern(kimi_pattern), SplitBehavior::isolated});
  steps.emplace_back(MapBytes());
  return std::make_unique<const TokenizerComponents>(TokenizerComponents{Normalizer(),
                                                                         PreTokenizer(std::move(steps)),
                                                                         std::move(model),
                                                                         std::move(added),
                                                                         SpecialTokens(),
                                                                         {byte_level_decoder()},
                                                                         TextLimits{400'000, 25'000}});
}

}  // namespace maniple
