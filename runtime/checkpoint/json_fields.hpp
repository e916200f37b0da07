// Reads untrusted JSON. Not for public headers, which stay free of the JSON library.
#pragma once

#include <kernels/support/check.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// Refuses nesting deeper than 64, a key given twice in one object, invalid UTF-8 and everything else that is
// not JSON. where: the file's name for messages.
nlohmann::json parse_json(std::string_view text, std::string_view where);
// The same, with the fields of each object in their order. Refuses more than 4,096 fields in an object, whose
// lookups are linear.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where);

// What is wrong, and where, of an exception that reading `text` threw. The library's own text is not for users.
std::string json_flaw(std::string_view text, const nlohmann::json::exception& error);

// For messages: a value or a name on one line, control characters escaped, long ones cut.
std::string shown(const nlohmann::json& value);

// The fields of one JSON object, each read with its type and range checked. A null field counts as absent.
class JsonFields {
 public:
  // Fails unless value is an object. path: "rope_scaling" for the fields of a nested object.
  JsonFields(const nlohmann::json& value, std::string_view where, std::string_view path = {});

  const nlohmann::json* find(std::string_view name) const;
  bool is_null(std::string_view name) const;  // and there: some defaults are for absent fields alone
  int64_t integer(std::string_view name, int64_t smallest, int64_t largest) const;
  int64_t integer_or(std::string_view name, int64_t fallback, int64_t smallest, int64_t largest) const;
  double number(std::string_view name, double smallest, double largest) const;
  double number_or(std::string_view name, double fallback, double smallest, double largest) const;
  bool boolean_or(std::string_view name, bool fallback) const;
  std::string text(std::string_view name) const;
  std::string text_or(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> sizes(std::string_view name) const;      // a list of whole numbers >= 0
  std::vector<int32_t> token_ids(std::string_view name) const;  // an id, a list of ids, or absent
  JsonFields object(std::string_view name) const;
  // True if the field is absent, equal to the number, or an empty list or object.
  bool is_neutral(std::string_view name, std::optional<double> number) const;
  auto items() const { return object_->items(); }

  // Fails on any other field. For objects in which an unknown field may change the meaning of the others.
  void allow_only(std::initializer_list<std::string_view> names) const;
  // "config.json: rope_scaling.rope_type is "yarn"; supported: ..."
  [[noreturn]] void refuse(std::string_view name, std::string_view supported) const;

 private:
  const nlohmann::json& present(std::string_view name) const;

  const nlohmann::json* object_;
  std::string where_;
  std::string path_;
};

}  // namespace maniple
