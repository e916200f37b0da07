// One line of JSON from outside, and the fields that requests of all shapes have; for the .cpp files of this
// folder (the JSON library stays out of the other headers).
#pragma once

#include <launch/input/sampling_fields.hpp>
#include <runtime/checkpoint/json_fields.hpp>

#include <fmt/format.h>

#include <limits>
#include <span>
#include <utility>

namespace maniple {

// where: "line 3", begins every message. All of them fail (input).
void check_utf8(std::string_view text, std::string_view where);
nlohmann::json parse_json_line(std::string_view text, std::string_view where);
// With the fields of each object in their order.
nlohmann::ordered_json parse_ordered_json_line(std::string_view text, std::string_view where);

// Refuses fields that are not known, naming the nearest that is.
void check_names(const nlohmann::json& object, std::span<const std::string> known, std::string_view where);

// What no type of ours can hold makes an unservable request (`error`), not a malformed line; here and below.
template <typename T>
std::optional<T> whole(const JsonFields& fields, std::string_view name, std::string& error) {
  const nlohmann::json* value = fields.find(name);
  if (!value) return std::nullopt;
  if (!value->is_number_integer()) fields.refuse(name, "a whole number");
  const bool fits = value->is_number_unsigned() ? std::in_range<T>(value->get<uint64_t>())
                                                : std::in_range<T>(value->get<int64_t>());
  if (fits) return value->get<T>();
  error = fmt::format("{} ({}) must be from {} to {}", name, value->dump(), std::numeric_limits<T>::min(),
                      std::numeric_limits<T>::max());
  return std::nullopt;
}

// All but logprobs, whose meaning differs. Fields that are not there stay unset.
SamplingFields sampling_of(const JsonFields& fields, std::string& error);

}  // namespace maniple
