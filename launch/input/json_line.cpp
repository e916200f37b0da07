#include <kernels/support/nearest_name.hpp>
#include <launch/input/json_line.hpp>
#include <runtime/text/utf8.hpp>

#include <algorithm>

namespace maniple {

using nlohmann::json;

namespace {

std::optional<float> number(const JsonFields& fields, std::string_view name) {
  const json* value = fields.find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) fields.refuse(name, "a number");
  return static_cast<float>(value->get<double>());
}

std::optional<std::vector<std::string>> stop_strings(const JsonFields& fields) {
  constexpr std::string_view form = "a text that is not empty, or a list of such";
  const json* value = fields.find("stop");
  if (!value) return std::nullopt;
  std::vector<std::string> stops;
  for (const json& stop : value->is_array() ? *value : json::array({*value})) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty()) fields.refuse("stop", form);
    stops.push_back(stop);
  }
  return stops;
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

SamplingFields sampling_of(const JsonFields& fields, std::string& error) {
  SamplingFields sampling;
  sampling.temperature = number(fields, "temperature");
  sampling.top_k = whole<int32_t>(fields, "top_k", error);
  sampling.top_p = number(fields, "top_p");
  sampling.min_p = number(fields, "min_p");
  sampling.seed = whole<uint64_t>(fields, "seed", error);
  sampling.max_tokens = whole<uint32_t>(fields, "max_tokens", error);
  sampling.min_tokens = whole<uint32_t>(fields, "min_tokens", error);
  if (fields.find("ignore_eos")) sampling.ignore_eos = fields.boolean_or("ignore_eos", false);
  if (fields.find("stop_token_ids")) sampling.stop_token_ids = fields.token_ids("stop_token_ids");
  sampling.stop = stop_strings(fields);
  return sampling;
}

}  // namespace maniple
