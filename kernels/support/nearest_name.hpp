// Suggests a name for a mistyped one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace maniple {

// The candidate with the smallest edit distance (Levenshtein), unless half of its letters would have to
// change.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace maniple
