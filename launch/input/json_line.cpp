#include <kernels/support/nearest_name.hpp>
#include <launch/input/json_line.hpp>
#include <runtime/text/utf8.hpp>

#include <algorithm>
#include <charconv>
#include <map>

namespace maniple {

using nlohmann::json;

namespace {

template <typename T>
void read(const JsonFields& fields, std::string_view name, std::optional<T>& field, std::string& error) {
  field = whole<T>(fields, name, error);
}

void read(const JsonFields& fields, std::string_view name, std::optional<float>& field, std::string&) {
  const json* value = fields.find(name);
  if (!value) return;
  if (!value->is_number()) fields.refuse(name, "a number");
  field = static_cast<float>(value->get<double>());
}

void read(const JsonFields& fields, std::string_view name, std::optional<bool>& field, std::string&) {
  if (fields.find(name)) field = fields.boolean_or(name, false);
}

void read(const JsonFields& fields, std::string_view name, std::optional<std::vector<int32_t>>& field,
          std::string& error) {
  if (!fields.find(name)) return;
  field = fields.token_ids(name);
  if (field->empty() && name == "allowed_token_ids")
    error = "allowed_token_ids is empty, and no token could be drawn; leave it out";
}

void read(const JsonFields& fields, std::string_view name, std::optional<std::vector<TokenBias>>& field,
          std::string& error) {
  constexpr std::string_view form = "an object of token ids with a number for each, as {\"50256\": -100}";
  const json* value = fields.find(name);
  if (!value) return;
  if (!value->is_object()) fields.refuse(name, form);
  std::map<int32_t, float> biases;
  for (const auto& [key, bias] : value->items()) {
    int32_t id = 0;
    const auto [stopped, flaw] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (key.empty() || stopped != key.data() + key.size() || !bias.is_number()) fields.refuse(name, form);
    if (flaw != std::errc() || !biases.emplace(id, static_cast<float>(bias.get<double>())).second)
      error = fmt::format("{}: token id {} is too large, or given twice", name, key);
  }
  field.emplace();
  for (const auto& [id, bias] : biases) field->push_back({id, bias});
}

void read(const JsonFields& fields, std::string_view name, std::optional<std::vector<std::string>>& field,
          std::string&) {
  const json* value = fields.find(name);
  if (!value) return;
  field.emplace();
  for (const json& text : value->is_array() ? *value : json::array({*value})) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      fields.refuse(name, "a text that is not empty, or a list of such");
    field->push_back(text);
  }
}

}  // namespace

void check_utf8(std::string_view text, std::string_view where) {
  if (const size_t at = first_invalid_utf8(text); at != std::string_view::npos)
    fail(ExitCode::input, "{}: byte {} is not valid UTF-8; convert the text to UTF-8", where, at + 1);
}

json parse_json_line(std::string_view text, std::string_view where) {
  check_utf8(text, where);
  return parse_json(text, where);
}

nlohmann::ordered_json parse_ordered_json_line(std::string_view text, std::string_view where) {
  check_utf8(text, where);
  return parse_ordered_json(text, where);
}

void check_names(const json& object, std::span<const std::string> known, std::string_view where) {
  for (const auto& [name, value] : object.items()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::optional<std::string> nearest = nearest_name(name, known);
    fail(ExitCode::input, "{}: unknown field {}; {}", where, shown(json(name)),
         nearest ? fmt::format("did you mean \"{}\"?", *nearest)
                 : fmt::format("known: {}", fmt::join(known, ", ")));
  }
}

StatedSampling sampling_of(const JsonFields& fields, std::string& error, std::string_view except) {
  StatedSampling sampling;
  for_sampling_fields([&](std::string_view name, auto&&, auto, auto of) {
    if (name != except) read(fields, name, of(sampling), error);
  });
  for_sampling_lists([&](std::string_view name, auto of) { read(fields, name, of(sampling), error); });
  return sampling;
}

}  // namespace maniple
