#include <algorithm>
#include <iterator>
#include <kernels/support/check.hpp>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <runtime/tokenizer/tokenizer_components.hpp>
#include <runtime/tokenizer/utf8.hpp>

namespace maniple {
namespace {

using nlohmann::json;

constexpr int deepest_nesting = 64;

[[noreturn]] void unsupported(std::string_view kind, std::string_view name) {
  fail(ExitCode::input, "tokenizer: {} '{}' is not supported", kind, name);
}

// Limits nesting for this file's recursion over Sequences. The JSON parser and its tree need no limit.
void check_nesting(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char byte = text[i];
    if (in_string && byte == '\\') {
      ++i;
    } else if (byte == '"') {
      in_string = !in_string;
    } else if (!in_string && (byte == '[' || byte == '{') && ++depth > deepest_nesting) {
      fail(ExitCode::input, "tokenizer: JSON nested deeper than {} at byte {}", deepest_nesting, i);
    } else if (!in_string && (byte == ']' || byte == '}')) {
      --depth;
    }
  }
}

// Typed access to a member. `where` names the object in messages.
const json* find(const json& object, std::string_view where, const char* key) {
  if (!object.is_object()) fail(ExitCode::input, "tokenizer: {} is not an object", where);
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const json& member(const json& object, std::string_view where, const char* key) {
  const json* found = find(object, where, key);
  if (found == nullptr) fail(ExitCode::input, "tokenizer: {} has no '{}'", where, key);
  return *found;
}

const json& array(const json& object, std::string_view where, const char* key) {
  const json& found = member(object, where, key);
  if (!found.is_array()) fail(ExitCode::input, "tokenizer: '{}' of {} is not an array", key, where);
  return found;
}

const std::string& as_string(const json& value, std::string_view where) {
  if (!value.is_string()) fail(ExitCode::input, "tokenizer: {} is not a string", where);
  return value.get_ref<const std::string&>();
}

const std::string& string(const json& object, std::string_view where, const char* key) {
  return as_string(member(object, where, key), fmt::format("'{}' of {}", key, where));
}

bool boolean(const json& object, std::string_view where, const char* key,
             std::optional<bool> otherwise = std::nullopt) {
  const json* found = find(object, where, key);
  if (found == nullptr && otherwise) return *otherwise;
  if (found == nullptr || !found->is_boolean())
    fail(ExitCode::input, "tokenizer: '{}' of {} is not true or false", key, where);
  return found->get<bool>();
}

// 64 bits hold what JSON writers write; anything beyond counts as too large.
int64_t as_integer(const json& value, std::string_view where) {
  const bool is_integer =
      value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() >> 63 != 0);
  if (!is_integer)
    fail(ExitCode::input, "tokenizer: {} is {}, not an integer of 64 bits", where, value.type_name());
  return value.get<int64_t>();
}

int64_t count(const json& object, std::string_view where, const char* key) {
  const auto value = as_integer(member(object, where, key), fmt::format("'{}' of {}", key, where));
  if (value < 0) fail(ExitCode::input, "tokenizer: '{}' of {} is {}", key, where, value);
  return value;
}

std::string one_character(const json& object, std::string_view where, const char* key) {
  const auto& text = string(object, where, key);
  if (text.empty() || utf8_sequence(text, 0).length != text.size())
    fail(ExitCode::input, "tokenizer: '{}' of {} is '{}', not one character", key, where, text);
  return text;
}

Regex pattern(const json& object, std::string_view where) {
  const json& found = member(object, where, "pattern");
  if (find(found, "a pattern", "Regex") != nullptr)
    return Regex::from_pattern(string(found, "a pattern", "Regex"));
  return Regex::from_literal(string(found, "a pattern", "String"));
}

// Visits the steps of a component in order: none if it is absent, itself, or those of a (nested) Sequence.
template <typename Visit>
void for_each_step(const json* component, std::string_view where, const char* list, const Visit& visit) {
  if (component == nullptr) return;
  const auto& type = string(*component, where, "type");
  if (type != "Sequence") return visit(*component, type);
  for (const json& step : array(*component, where, list)) for_each_step(&step, where, list, visit);
}

Replace replace(const json& step, std::string_view where) {
  return {pattern(step, where), string(step, where, "content")};
}

Normalizer parse_normalizer(const json& root) {
  constexpr auto where = "the normalizer";
  std::vector<NormalizerStep> steps;
  for_each_step(find(root, "the file", "normalizer"), where, "normalizers",
                [&](const json& step, const std::string& type) {
                  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD")
                    steps.emplace_back(UnicodeForm(type));
                  else if (type == "Lowercase")
                    steps.emplace_back(Lowercase());
                  else if (type == "Prepend")
                    steps.emplace_back(Prepend{string(step, where, "prepend")});
                  else if (type == "Replace")
                    steps.emplace_back(replace(step, where));
                  else
                    unsupported("normalizer", type);
                });
  return Normalizer(std::move(steps));
}

SplitBehavior parse_behavior(const std::string& name) {
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  unsupported("split behavior", name);
}

VisibleSpace parse_visible_space(const json& step, std::string_view where) {
  const json* scheme = find(step, where, "prepend_scheme");
  const std::string& name = scheme ? as_string(*scheme, "a prepend_scheme") : "always";
  auto prepend = VisibleSpace::Prepend::always;
  if (name == "first")
    prepend = VisibleSpace::Prepend::first;
  else if (name == "never")
    prepend = VisibleSpace::Prepend::never;
  else if (name != "always")
    unsupported("prepend scheme", name);
  if (!boolean(step, where, "add_prefix_space", true)) prepend = VisibleSpace::Prepend::never;  // older files
  return {one_character(step, where, "replacement"), prepend};
}

void add_byte_level(const json& step, std::string_view where, std::vector<PreTokenizerStep>& steps) {
  if (boolean(step, where, "add_prefix_space")) steps.emplace_back(PrefixSpace());
  if (boolean(step, where, "use_regex", true))
    steps.emplace_back(Split{Regex::from_pattern(gpt2_pattern), SplitBehavior::isolated});
  steps.emplace_back(MapBytes());
}

void add_metaspace(const json& step, std::string_view where, std::vector<PreTokenizerStep>& steps) {
  const auto space = parse_visible_space(step, where);
  steps.emplace_back(space);
  if (boolean(step, where, "split", true))
    steps.emplace_back(Split{Regex::from_literal(space.replacement), SplitBehavior::merged_with_next});
}

PreTokenizer parse_pre_tokenizer(const json& root) {
  constexpr auto where = "the pre-tokenizer";
  std::vector<PreTokenizerStep> steps;
  for_each_step(
      find(root, "the file", "pre_tokenizer"), where, "pretokenizers",
      [&](const json& step, const std::string& type) {
        if (type == "Split")
          steps.emplace_back(Split{pattern(step, where), parse_behavior(string(step, where, "behavior")),
                                   boolean(step, where, "invert")});
        else if (type == "Digits")
          steps.emplace_back(Split{Regex::from_pattern(R"(\p{N})"), boolean(step, where, "individual_digits")
                                                                        ? SplitBehavior::isolated
                                                                        : SplitBehavior::contiguous});
        else if (type == "ByteLevel")
          add_byte_level(step, where, steps);
        else if (type == "Metaspace")
          add_metaspace(step, where, steps);
        else
          unsupported("pre-tokenizer", type);
      });
  return PreTokenizer(std::move(steps));
}

std::vector<DecoderStage> parse_decoder(const json& root) {
  constexpr auto where = "the decoder";
  std::vector<DecoderStage> stages;
  for_each_step(
      find(root, "the file", "decoder"), where, "decoders", [&](const json& step, const std::string& type) {
        if (type == "ByteLevel")
          stages.push_back(byte_level_decoder());
        else if (type == "ByteFallback")
          stages.push_back(byte_fallback_decoder());
        else if (type == "Fuse")
          stages.push_back(fuse_decoder());
        else if (type == "Replace")
          stages.push_back(replace_decoder(replace(step, where)));
        else if (type == "Strip")
          stages.push_back(strip_decoder(one_character(step, where, "content"),
                                         static_cast<size_t>(count(step, where, "start")),
                                         static_cast<size_t>(count(step, where, "stop"))));
        else if (type == "Metaspace")
          stages.push_back(
              metaspace_decoder(parse_visible_space(step, where).replacement,
                                parse_visible_space(step, where).prepend != VisibleSpace::Prepend::never));
        else
          unsupported("decoder", type);
      });
  if (find(root, "the file", "decoder") == nullptr) stages.push_back(space_between_decoder());
  return stages;
}

std::vector<int32_t> template_token(const json& special_tokens, const std::string& name, int32_t id_end) {
  std::vector<int32_t> ids;
  for (const json& value :
       array(member(special_tokens, "'special_tokens'", name.c_str()), "a special token", "ids")) {
    const auto id = as_integer(value, "a template's token id");
    if (id < 0 || id >= id_end)
      fail(ExitCode::input, "tokenizer: template token '{}' has id {}, outside 0..{}", name, id, id_end - 1);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

SpecialTokens parse_template(const json& step, int32_t id_end) {
  constexpr auto where = "the template";
  SpecialTokens tokens;
  int sequences = 0;
  for (const json& piece : array(step, where, "single")) {
    if (const json* sequence = find(piece, "a template piece", "Sequence")) {
      if (string(*sequence, "a template piece", "id") != "A" || ++sequences > 1)
        unsupported("template with sequence", sequence->dump());
      continue;
    }
    const auto& name = string(member(piece, "a template piece", "SpecialToken"), "a template piece", "id");
    auto& side = sequences == 0 ? tokens.before : tokens.after;
    std::ranges::copy(template_token(member(step, where, "special_tokens"), name, id_end),
                      std::back_inserter(side));
  }
  if (sequences == 0) fail(ExitCode::input, "tokenizer: the template has no place for the text");
  return tokens;
}

SpecialTokens parse_post_processor(const json& root, int32_t id_end) {
  std::optional<SpecialTokens> tokens;
  for_each_step(find(root, "the file", "post_processor"), "the post-processor", "processors",
                [&](const json& step, const std::string& type) {
                  if (type == "ByteLevel") return;  // changes offsets, not ids
                  if (type != "TemplateProcessing") unsupported("post-processor", type);
                  if (tokens) unsupported("post-processor", "a second TemplateProcessing");
                  tokens = parse_template(step, id_end);
                });
  return tokens.value_or(SpecialTokens());
}

std::vector<std::pair<std::string, int64_t>> parse_vocabulary(const json& model) {
  const json& vocab = member(model, "the model", "vocab");
  if (!vocab.is_object()) unsupported("vocabulary that is", vocab.type_name());
  std::vector<std::pair<std::string, int64_t>> tokens;
  tokens.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_integer())
      fail(ExitCode::input, "tokenizer: the id of token '{}' is {}, not an integer", token, id.type_name());
    tokens.emplace_back(token, as_integer(id, "a token id"));
  }
  return tokens;
}

// ["a", "b"], or "a b" in older files.
Bpe::Merge parse_merge(const json& merge) {
  if (merge.is_array() && merge.size() == 2)
    return {as_string(merge[0], "half of a merge"), as_string(merge[1], "half of a merge")};
  if (!merge.is_string())
    fail(ExitCode::input, "tokenizer: merge {} is neither [\"a\", \"b\"] nor \"a b\"", merge.dump());
  const std::string_view text = merge.get_ref<const std::string&>();
  const auto space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
    fail(ExitCode::input, "tokenizer: merge '{}' is not two tokens with one space between them", text);
  return {text.substr(0, space), text.substr(space + 1)};
}

std::vector<Bpe::Merge> parse_merges(const json& model) {
  std::vector<Bpe::Merge> merges;
  for (const json& merge : array(model, "the model", "merges")) {
    const bool is_version = merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version");
    if (!is_version) merges.push_back(parse_merge(merge));
  }
  return merges;
}

void refuse_unless_empty(const json& object, std::string_view where, const char* key) {
  const json* value = find(object, where, key);
  if (value == nullptr || *value == "" || *value == 0.0) return;
  fail(ExitCode::input, "tokenizer: '{}' of {} is not supported; set it to null", key, where);
}

Bpe parse_model(const json& root) {
  constexpr auto where = "the model";
  const json& model = member(root, "the file", "model");
  if (find(model, where, "type") != nullptr && string(model, where, "type") != "BPE")
    unsupported("model", string(model, where, "type"));
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    refuse_unless_empty(model, where, key);
  BpeOptions options;
  if (find(model, where, "unk_token") != nullptr) options.unk_token = string(model, where, "unk_token");
  options.fuse_unk = boolean(model, where, "fuse_unk", false);
  options.byte_fallback = boolean(model, where, "byte_fallback", false);
  options.ignore_merges = boolean(model, where, "ignore_merges", false);
  return Bpe(Vocabulary(parse_vocabulary(model)), parse_merges(model), std::move(options));
}

AddedToken parse_added_token(const json& token) {
  constexpr auto where = "an added token";
  const auto& content = string(token, where, "content");
  const auto id = as_integer(member(token, where, "id"), fmt::format("the id of added token '{}'", content));
  if (id < 0 || id > std::numeric_limits<int32_t>::max())
    fail(ExitCode::input, "tokenizer: added token '{}' has id {}", content, id);
  return {.content = content,
          .id = static_cast<int32_t>(id),
          .is_single_word = boolean(token, where, "single_word"),
          .strips_left = boolean(token, where, "lstrip"),
          .strips_right = boolean(token, where, "rstrip"),
          .is_normalized = boolean(token, where, "normalized"),
          .is_special = boolean(token, where, "special")};
}

// Hugging Face takes the id of an added token from the vocabulary or else counts on from its size, whatever
// the file says. Where the two disagree, it is unknown with which ids the model was trained.
std::vector<AddedToken> parse_added_tokens(const json& root, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (find(root, "the file", "added_tokens") == nullptr) return tokens;
  std::map<std::string, int32_t> counted;
  auto next_id = static_cast<int32_t>(vocabulary.token_count());
  for (const json& value : array(root, "the file", "added_tokens")) {
    auto token = parse_added_token(value);
    if (token.content.empty()) continue;
    auto expected = vocabulary.find(token.content);
    if (!expected) {
      const auto [entry, is_new] = counted.emplace(token.content, next_id);
      next_id += is_new ? 1 : 0;
      expected = entry->second;
    }
    if (token.id != *expected)
      fail(ExitCode::input, "tokenizer: added token '{}' has id {}, but the vocabulary calls for {}",
           token.content, token.id, *expected);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

json parse(std::string_view text) {
  check_nesting(text);
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    fail(ExitCode::input, "tokenizer: {}", error.what());
  }
}

}  // namespace

std::unique_ptr<const TokenizerComponents> parse_tokenizer_json(std::string_view text) {
  const json root = parse(text);
  if (find(root, "the file", "version") != nullptr && string(root, "the file", "version") != "1.0")
    unsupported("version", string(root, "the file", "version"));
  for (const char* key : {"truncation", "padding"}) refuse_unless_empty(root, "the file", key);
  auto normalizer = parse_normalizer(root);
  auto model = parse_model(root);
  AddedTokens added(parse_added_tokens(root, model.vocabulary()), normalizer);
  auto special = parse_post_processor(root, std::max(model.vocabulary().id_end(), added.id_end()));
  return std::make_unique<const TokenizerComponents>(
      TokenizerComponents{std::move(normalizer), parse_pre_tokenizer(root), std::move(model),
                          std::move(added), std::move(special), parse_decoder(root)});
}

}  // namespace maniple
