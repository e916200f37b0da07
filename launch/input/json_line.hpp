// Parses one line of JSON, and the fields that all request shapes share. Include
// it in .cpp files only: the JSON library stays out of the other headers.
#pragma once

#include <kernels/support/sampling_params.hpp>
#include <runtime/checkpoint/json_fields.hpp>

#include <fmt/format.h>

#include <limits>
#include <span>

namespace maniple {

// where: "line 3", the beginning of every message. All of them fail (input).
void check_utf8(std::string_view text, std::string_view where);
nlohmann::json parse_json_line(std::string_view text, std::string_view where);
// Keeps the order of the fields.
nlohmann::ordered_json parse_ordered_json_line(std::string_view text, std::string_view where);

// Refuses unknown fields, and names the nearest known one.
void check_names(const nlohmann::json& object, std::span<const std::string> known, std::string_view where);

// A number outside the type's range sets `error`: the request
// cannot be served, but the line is not malformed. Here and below.
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

// All fields, except one to which the shape gives a meaning of its own. Absent fields stay unset.
StatedSampling sampling_of(const JsonFields& fields, std::string& error, std::string_view except = {});

}  // namespace maniple
