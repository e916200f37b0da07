// Whether the numbers of a bench may be believed.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/tools/analysis/statistics.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

enum class Quality : uint8_t { valid, noisy, invalid };
constexpr std::string_view name_of(Quality quality) {
  constexpr std::string_view names[] = {"VALID", "NOISY", "INVALID"};
  return names[static_cast<size_t>(quality)];
}

struct Verdict {
  Quality quality = Quality::valid;
  std::string reason;  // empty for a valid one
};

struct NamedInterval {
  std::string name;
  Interval interval;
};

// What a verdict looks at. A bench leaves out what it does not have.
struct Evidence {
  std::vector<NamedInterval> results;
  uint64_t wrong = 0;  // values
  std::optional<double> probe_drift =
      std::nullopt;                       // of a probe before and after the bench, as a share of the first
  double seconds = 0, least_seconds = 0;  // measured, and wanted
};

// INVALID: nothing measured, wrong values, a drift above 5 %, too little time. NOISY: half of an interval is
// above 5 % of its median, or too few repeats for an interval.
Verdict judge(const Evidence& evidence);

// "RESULT NOISY: half CI 7.1 % > 5 % ...", with a line end.
std::string result_line(const Verdict& verdict);

}  // namespace maniple
