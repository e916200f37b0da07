#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/token_settings.hpp>

#include <algorithm>
#include <array>
#include <charconv>

namespace maniple {

using nlohmann::json;

namespace {

constexpr std::string_view config_name = "tokenizer_config.json", map_name = "special_tokens_map.json",
                           added_name = "added_tokens.json", decoder_name = "added_tokens_decoder",
                           list_name = "extra_special_tokens", old_list_name = "additional_special_tokens";
constexpr std::array names = {"bos_token", "eos_token", "unk_token", "sep_token",
                              "pad_token", "cls_token", "mask_token"};

json read_object(const ModelFiles& files, std::string_view name) {
  json object = files.has(name) ? parse_json(files.text(name), files.where(name)) : json::object();
  const JsonFields refuses_other_values(object, files.where(name));
  return object;
}

// A text, or an object with "content" and the flags of a token.
TokenSetting setting_of(const JsonFields& fields, std::string_view name) {
  if (fields.find(name)->is_string()) return {.content = fields.text(name), .special = true};
  const JsonFields token = fields.object(name);
  TokenSetting setting{.content = token.text("content"),
                       .single_word = token.boolean_or("single_word", false),
                       .lstrip = token.boolean_or("lstrip", false),
                       .rstrip = token.boolean_or("rstrip", false),
                       .special = token.boolean_or("special", false)};
  setting.normalized = token.boolean_or("normalized", !setting.special);
  return setting;
}

int64_t id_of(const JsonFields& fields, const std::string& name) {
  int64_t id = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  if (error != std::errc{} || end != name.data() + name.size() || id < 0)
    fields.refuse(name, "a token id as the name of each token");
  return id;
}

// special_tokens_map.json overrides tokenizer_config.json; the two lists are joined.
void merge_map(json& config, const json& map) {
  for (const auto& [name, value] : map.items()) {
    json& old = config[name];
    if (name == list_name && value.is_array() && old.is_array())
      std::ranges::copy_if(value, std::back_inserter(old),
                           [&](const json& token) { return std::ranges::find(old, token) == old.end(); });
    else
      old = value;
    if (old.is_object() && old.contains("content")) old["special"] = true;
  }
}

bool is_named(const std::string& name, const json& value) {
  return name.ends_with("_token") && (value.is_string() || value.is_object());
}

TokenSetting named_setting(const JsonFields& fields, std::string_view name) {
  TokenSetting token = setting_of(fields, name);
  token.special = true;
  return token;
}

// The names that `wanted` takes, in the order of the file's text: they get ids in this order.
template <typename Wanted>
void add_named(TokenSettings& settings, const JsonFields& fields, std::string_view text, Wanted wanted) {
  std::vector<std::string> own;
  for (const auto& [name, value] : fields.items())
    if (wanted(name, value) && !settings.find(name)) own.push_back(name);
  std::ranges::sort(own, {}, [&](const std::string& name) { return text.find(json(name).dump()); });
  for (const std::string& name : own) settings.named.emplace_back(name, named_setting(fields, name));
}

// A list of tokens, or an object of named ones.
void add_further(TokenSettings& settings, const JsonFields& config, std::string_view text,
                 std::string_view where) {
  const json* further = config.find(list_name);
  if (!further) return;
  if (further->is_object())
    return add_named(settings, config.object(list_name),
                     text.substr(std::min(text.find(list_name), text.size())),
                     [](const std::string&, const json& value) { return !value.is_null(); });
  if (!further->is_array()) config.refuse(list_name, "a list of tokens, or an object of named ones");
  for (const json& token : *further) {
    const json alone{{list_name, token}};
    if (!token.is_null()) settings.further.push_back(setting_of(JsonFields(alone, where), list_name));
  }
}

}  // namespace

const std::string* TokenSettings::find(std::string_view name) const {
  const auto found =
      std::ranges::find(named, name, [](const auto& token) -> std::string_view { return token.first; });
  return found == named.end() ? nullptr : &found->second.content;
}

bool TokenSettings::names(std::string_view content) const {
  return std::ranges::any_of(named, [&](const auto& token) { return token.second.content == content; });
}

TokenSettings read_token_settings(const ModelFiles& files) {
  json config = read_object(files, config_name);
  const std::string where = files.where(config_name);
  const bool has_decoder = config.contains(decoder_name);
  if (!has_decoder) merge_map(config, read_object(files, map_name));
  if (config.contains(old_list_name) && !config.contains(list_name))
    config[list_name] = config[old_list_name];
  const JsonFields fields(config, where);
  TokenSettings settings;
  std::string text;
  for (const std::string_view name : {config_name, map_name})
    if (files.has(name)) text += files.text(name);
  for (const char* name : names)
    if (fields.find(name)) settings.named.emplace_back(name, named_setting(fields, name));
  add_named(settings, fields, text, is_named);
  add_further(settings, fields, text, where);
  if (has_decoder && fields.find(decoder_name)) {
    const JsonFields decoder = fields.object(decoder_name);
    for (const auto& [name, value] : decoder.items()) {
      TokenSetting& token = settings.added[id_of(decoder, name)] = setting_of(decoder, name);
      token.id = id_of(decoder, name);
    }
  } else if (!has_decoder) {
    settings.yields = true;
    const json added = read_object(files, added_name);
    const JsonFields tokens(added, files.where(added_name));
    for (const auto& [content, value] : tokens.items()) {
      const int64_t id = tokens.integer(content, 0, INT32_MAX);
      const bool special = settings.names(content) ||
                           std::ranges::count(settings.further, content, &TokenSetting::content) > 0;
      if (const auto other = settings.added.find(id); other != settings.added.end())
        fail(ExitCode::input, "{}: {} and {} have the same id, {}", files.where(added_name),
             shown(other->second.content), shown(content), id);
      settings.added[id] = {.content = content, .normalized = !special, .special = special, .id = id};
    }
  }
  return settings;
}

}  // namespace maniple
