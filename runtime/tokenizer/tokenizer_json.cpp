#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/token_settings.hpp>
#include <runtime/text/utf8.hpp>
#include <runtime/tokenizer/oniguruma.hpp>
#include <runtime/tokenizer/tokenizer_components.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>

namespace maniple {
namespace {

using nlohmann::json;

constexpr int deepest_nesting = 64;

[[noreturn]] void unsupported(std::string_view kind, std::string_view name) {
  fail(ExitCode::input, "tokenizer: {} '{}' is not supported", kind, name);
}

JsonFields fields_of(const json& object, std::string_view path) { return {object, "tokenizer", path}; }

const json& list(const JsonFields& fields, std::string_view name) {
  const json* found = fields.find(name);
  if (!found || !found->is_array()) fields.refuse(name, "a list");
  return *found;
}

bool boolean(const JsonFields& fields, std::string_view name) {
  if (!fields.find(name)) fields.refuse(name, "true or false");
  return fields.boolean_or(name, false);
}

size_t count(const JsonFields& fields, std::string_view name) {
  return static_cast<size_t>(fields.integer(name, 0, std::numeric_limits<int64_t>::max()));
}

std::string one_character(const JsonFields& fields, std::string_view name) {
  std::string text = fields.text(name);
  if (text.empty() || character_at(text, 0) != text) fields.refuse(name, "one character");
  return text;
}

Regex pattern(const JsonFields& fields) {
  const JsonFields found = fields.object("pattern");
  return found.find("Regex") ? oniguruma_pattern(found.text("Regex")) : literal_pattern(found.text("String"));
}

// Visits the steps of a component in order: none if it is absent, itself, or those of a (nested) Sequence.
template <typename Visit>
void for_each_step(const json* component, std::string_view name, std::string_view steps, const Visit& visit) {
  if (!component) return;
  const JsonFields fields = fields_of(*component, name);
  const std::string type = fields.text("type");
  if (type != "Sequence") return visit(fields, type);
  for (const json& step : list(fields, steps)) for_each_step(&step, name, steps, visit);
}

Replace replace(const JsonFields& step) { return {pattern(step), step.text("content")}; }

Normalizer parse_normalizer(const JsonFields& root) {
  std::vector<NormalizerStep> steps;
  for_each_step(root.find("normalizer"), "normalizer", "normalizers",
                [&](const JsonFields& step, const std::string& type) {
                  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD")
                    steps.emplace_back(UnicodeForm(type));
                  else if (type == "Lowercase")
                    steps.emplace_back(Lowercase());
                  else if (type == "Prepend")
                    steps.emplace_back(Prepend{step.text("prepend")});
                  else if (type == "Replace")
                    steps.emplace_back(replace(step));
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

VisibleSpace parse_visible_space(const JsonFields& step) {
  const std::string scheme = step.text_or("prepend_scheme", "always");
  auto prepend = VisibleSpace::Prepend::always;
  if (scheme == "first")
    prepend = VisibleSpace::Prepend::first;
  else if (scheme == "never")
    prepend = VisibleSpace::Prepend::never;
  else if (scheme != "always")
    unsupported("prepend scheme", scheme);
  if (!step.boolean_or("add_prefix_space", true)) prepend = VisibleSpace::Prepend::never;  // older files
  return {one_character(step, "replacement"), prepend};
}

void add_byte_level(const JsonFields& step, std::vector<PreTokenizerStep>& steps) {
  if (boolean(step, "add_prefix_space")) steps.emplace_back(PrefixSpace());
  if (step.boolean_or("use_regex", true))
    steps.emplace_back(Split{oniguruma_pattern(gpt2_pattern), SplitBehavior::isolated});
  steps.emplace_back(MapBytes());
}

void add_metaspace(const JsonFields& step, std::vector<PreTokenizerStep>& steps) {
  const VisibleSpace space = parse_visible_space(step);
  steps.emplace_back(space);
  if (step.boolean_or("split", true))
    steps.emplace_back(Split{literal_pattern(space.replacement), SplitBehavior::merged_with_next});
}

PreTokenizer parse_pre_tokenizer(const JsonFields& root) {
  std::vector<PreTokenizerStep> steps;
  for_each_step(root.find("pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                [&](const JsonFields& step, const std::string& type) {
                  if (type == "Split")
                    steps.emplace_back(
                        Split{pattern(step), parse_behavior(step.text("behavior")), boolean(step, "invert")});
                  else if (type == "Digits")
                    steps.emplace_back(Split{oniguruma_pattern(R"(\p{N})"), boolean(step, "individual_digits")
                                                                                ? SplitBehavior::isolated
                                                                                : SplitBehavior::contiguous});
                  else if (type == "ByteLevel")
                    add_byte_level(step, steps);
                  else if (type == "Metaspace")
                    add_metaspace(step, steps);
                  else
                    unsupported("pre-tokenizer", type);
                });
  return PreTokenizer(std::move(steps));
}

std::vector<DecoderStage> parse_decoder(const JsonFields& root) {
  std::vector<DecoderStage> stages;
  const auto add = [&](const JsonFields& step, const std::string& type) {
    if (type == "ByteLevel") return stages.push_back(byte_level_decoder());
    if (type == "ByteFallback") return stages.push_back(byte_fallback_decoder());
    if (type == "Fuse") return stages.push_back(fuse_decoder());
    if (type == "Replace") return stages.push_back(replace_decoder(replace(step)));
    if (type == "Strip")
      return stages.push_back(
          strip_decoder(one_character(step, "content"), count(step, "start"), count(step, "stop")));
    if (type != "Metaspace") unsupported("decoder", type);
    const auto [replacement, prepend] = parse_visible_space(step);
    stages.push_back(metaspace_decoder(replacement, prepend != VisibleSpace::Prepend::never));
  };
  for_each_step(root.find("decoder"), "decoder", "decoders", add);
  if (!root.find("decoder")) stages.push_back(space_between_decoder());
  return stages;
}

std::vector<int32_t> template_token(const JsonFields& special_tokens, const std::string& name,
                                    int32_t id_end) {
  const JsonFields token = special_tokens.object(name);
  std::vector<int32_t> ids = token.token_ids("ids");
  if (!token.find("ids") || (!ids.empty() && std::ranges::max(ids) >= id_end))
    token.refuse("ids", fmt::format("ids from 0 to {}", id_end - 1));
  return ids;
}

SpecialTokens parse_template(const JsonFields& step, int32_t id_end) {
  SpecialTokens tokens;
  int sequences = 0;
  for (const json& piece : list(step, "single")) {
    const JsonFields fields = fields_of(piece, "post_processor.single");
    if (const json* sequence = fields.find("Sequence")) {
      if (fields.object("Sequence").text("id") != "A" || ++sequences > 1)
        unsupported("template with sequence", sequence->dump());
      continue;
    }
    auto& side = sequences == 0 ? tokens.before : tokens.after;
    std::ranges::copy(
        template_token(step.object("special_tokens"), fields.object("SpecialToken").text("id"), id_end),
        std::back_inserter(side));
  }
  if (sequences == 0) fail(ExitCode::input, "tokenizer: the template has no place for the text");
  return tokens;
}

SpecialTokens parse_post_processor(const JsonFields& root, int32_t id_end) {
  std::optional<SpecialTokens> tokens;
  for_each_step(root.find("post_processor"), "post_processor", "processors",
                [&](const JsonFields& step, const std::string& type) {
                  if (type == "ByteLevel") return;  // changes offsets, not ids
                  if (type != "TemplateProcessing") unsupported("post-processor", type);
                  if (tokens) unsupported("post-processor", "a second TemplateProcessing");
                  tokens = parse_template(step, id_end);
                });
  return tokens.value_or(SpecialTokens());
}

std::vector<std::pair<std::string, int64_t>> parse_vocabulary(const JsonFields& model) {
  std::vector<std::pair<std::string, int64_t>> tokens;
  for (const auto& [token, id] : model.object("vocab").items()) {
    const bool fits = id.is_number_integer() && !(id.is_number_unsigned() && id.get<uint64_t>() >> 63 != 0);
    if (!fits)
      fail(ExitCode::input, "tokenizer: the token id of '{}' is {}, not an integer of 64 bits", token,
           shown(id));
    tokens.emplace_back(token, id.get<int64_t>());
  }
  return tokens;
}

// ["a", "b"], or "a b" in older files.
Bpe::Merge parse_merge(const json& merge) {
  using Text = const std::string&;
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get_ref<Text>(), merge[1].get_ref<Text>()};
  if (!merge.is_string())
    fail(ExitCode::input, "tokenizer: merge {} is neither [\"a\", \"b\"] nor \"a b\"", shown(merge));
  const std::string_view text = merge.get_ref<Text>();
  const auto space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
    fail(ExitCode::input, "tokenizer: merge '{}' is not two tokens with one space between them", text);
  return {text.substr(0, space), text.substr(space + 1)};
}

std::vector<Bpe::Merge> parse_merges(const JsonFields& model) {
  std::vector<Bpe::Merge> merges;
  for (const json& merge : list(model, "merges")) {
    const bool is_version = merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version");
    if (!is_version) merges.push_back(parse_merge(merge));
  }
  return merges;
}

void refuse_unless_empty(const JsonFields& fields, const char* name) {
  const json* value = fields.find(name);
  if (!value || *value == "" || *value == 0.0) return;
  fail(ExitCode::input, "tokenizer: '{}' is not supported; set it to null", name);
}

Bpe parse_model(const JsonFields& model) {
  if (const std::string type = model.text_or("type", "BPE"); type != "BPE") unsupported("model", type);
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    refuse_unless_empty(model, name);
  BpeOptions options;
  if (model.find("unk_token")) options.unk_token = model.text("unk_token");
  options.fuse_unk = model.boolean_or("fuse_unk", false);
  options.byte_fallback = model.boolean_or("byte_fallback", false);
  options.ignore_merges = model.boolean_or("ignore_merges", false);
  return Bpe(Vocabulary(parse_vocabulary(model)), parse_merges(model), std::move(options));
}

AddedToken parse_added_token(const json& token) {
  const JsonFields fields = fields_of(token, "added_tokens");
  const std::string content = fields.text("content");
  const json* id = fields.find("id");
  if (!id || !id->is_number_unsigned() || id->get<uint64_t>() > std::numeric_limits<int32_t>::max())
    fail(ExitCode::input, "tokenizer: added token '{}' has id {}", content, id ? shown(*id) : "none");
  return {.content = content,
          .id = id->get<int32_t>(),
          .is_single_word = boolean(fields, "single_word"),
          .strips_left = boolean(fields, "lstrip"),
          .strips_right = boolean(fields, "rstrip"),
          .is_normalized = boolean(fields, "normalized"),
          .is_special = boolean(fields, "special")};
}

// The ids of added tokens: of the vocabulary, else counted on, as Hugging Face's library does, whatever the file says.
class AddedIds {
 public:
  explicit AddedIds(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  int32_t id_of(const std::string& content) {
    if (const auto id = vocabulary_.find(content)) return take(content, *id);
    if (const auto found = ids_.find(content); found != ids_.end()) return found->second;
    return take(content, std::max(static_cast<int32_t>(vocabulary_.token_count()), end_));
  }
  // The token with that id; empty: none.
  std::string owner(int64_t id) const {
    for (const auto& [content, taken] : ids_)
      if (taken == id) return content;
    return id > INT32_MAX ? "" : std::string(vocabulary_.text(static_cast<int32_t>(id)).value_or(""));
  }

 private:
  int32_t take(const std::string& content, int32_t id) {
    end_ = std::max(end_, id + 1);
    return ids_[content] = id;
  }

  const Vocabulary& vocabulary_;
  std::map<std::string, int32_t> ids_;
  int32_t end_ = 0;  // largest added id + 1
};

// Where the file and the count disagree, it is unknown with which ids the model was trained.
std::vector<AddedToken> parse_added_tokens(const JsonFields& root, AddedIds& ids) {
  std::vector<AddedToken> tokens;
  if (!root.find("added_tokens")) return tokens;
  for (const json& value : list(root, "added_tokens")) {
    auto token = parse_added_token(value);
    if (token.content.empty()) continue;
    if (const int32_t expected = ids.id_of(token.content); token.id != expected)
      fail(ExitCode::input, "tokenizer: added token '{}' has id {}, but the vocabulary calls for {}",
           token.content, token.id, expected);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedToken added(const TokenSetting& token, int32_t id) {
  return {.content = token.content,
          .id = id,
          .is_single_word = token.single_word,
          .strips_left = token.lstrip,
          .strips_right = token.rstrip,
          .is_normalized = token.normalized,
          .is_special = token.special};
}

// Adds what the files beside tokenizer.json name, in transformers' order: tokens with ids, unless the same is there; named ones and
// further ones, unless their text is.
void add_settings(std::vector<AddedToken>& tokens, const TokenSettings& settings, AddedIds& ids) {
  std::set<std::string> there;
  std::vector<TokenSetting> further;
  for (const AddedToken& token : tokens) there.insert(token.content);
  for (const auto& [id, setting] : settings.added) {
    TokenSetting token = setting;
    const auto same_id = [id = id](const AddedToken& other) { return other.id == id; };
    const auto same = [&](const AddedToken& other) { return other == added(token, other.id); };
    if (settings.yields ? std::ranges::any_of(tokens, same_id) : std::ranges::any_of(tokens, same)) continue;
    token.special |= settings.names(token.content);
    further.push_back(token);
  }
  for (const TokenSetting& token : further) there.insert(token.content);
  for (const auto& [name, token] : settings.named)
    if (there.insert(token.content).second) further.push_back(token);
  for (const TokenSetting& token : settings.further)
    if (there.insert(token.content).second) further.push_back(token);
  for (const TokenSetting& token : further)
    if (!token.content.empty()) tokens.push_back(added(token, ids.id_of(token.content)));
  for (const TokenSetting& token : further)
    if (const std::string owner = token.id ? ids.owner(*token.id) : "";
        !owner.empty() && owner != token.content)
      fail(
          ExitCode::input,
          "tokenizer: tokenizer_config.json or added_tokens.json gives '{}' the id {}, which is that of '{}'",
          token.content, *token.id, owner);
}

// Limits nesting for the recursion over Sequences. The parser and its tree need no limit.
json parse(std::string_view text) try {
  return json::parse(text, [](int depth, json::parse_event_t, const json&) {
    if (depth > deepest_nesting)
      fail(ExitCode::input, "tokenizer: JSON nested deeper than {} levels", deepest_nesting);
    return true;
  });
} catch (const json::exception& error) {
  fail(ExitCode::input, "tokenizer: not valid JSON: {}", json_flaw(text, error));
}

}  // namespace

std::unique_ptr<const TokenizerComponents> parse_tokenizer_json(std::string_view text,
                                                                const TokenSettings& settings) {
  const json file = parse(text);
  const JsonFields root = fields_of(file, "");
  if (const std::string version = root.text_or("version", "1.0"); version != "1.0")
    unsupported("version", version);
  for (const char* name : {"truncation", "padding"}) refuse_unless_empty(root, name);
  auto normalizer = parse_normalizer(root);
  auto model = parse_model(root.object("model"));
  AddedIds ids(model.vocabulary());
  std::vector<AddedToken> tokens = parse_added_tokens(root, ids);
  add_settings(tokens, settings, ids);
  AddedTokens added(tokens, normalizer);
  auto special = parse_post_processor(root, std::max(model.vocabulary().id_end(), added.id_end()));
  return std::make_unique<const TokenizerComponents>(
      TokenizerComponents{std::move(normalizer), parse_pre_tokenizer(root), std::move(model),
                          std::move(added), std::move(special), parse_decoder(root)});
}

}  // namespace maniple
