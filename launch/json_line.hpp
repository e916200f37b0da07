// One line of JSON from outside, for the .cpp files of this folder (the JSON library stays out of the other
// headers).
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace maniple {

// where: "line 3", begins every message. All of them fail (input).
[[noreturn]] void refuse_line(std::string_view where, const std::string& problem);
void check_utf8(std::string_view text, std::string_view where);
nlohmann::json parse_json_line(std::string_view text, std::string_view where);
// With the fields of each object in their order.
nlohmann::ordered_json parse_ordered_json_line(std::string_view text, std::string_view where);

}  // namespace maniple
