#include <kernels/support/counted.hpp>
#include <launch/tools/bench/verdict.hpp>

#include <algorithm>
#include <cmath>

namespace maniple {
namespace {

constexpr double most_drift = 0.05, widest = 0.05;

// Of its median; NaN without an interval.
double half_width(const NamedInterval& result) {
  return (result.interval.high - result.interval.low) / 2 / result.interval.median;
}

std::string reason_against(const Evidence& evidence) {
  if (evidence.results.empty()) return "nothing was measured";
  if (evidence.wrong > 0) return fmt::format("{}, 0 wanted", counted(evidence.wrong, "wrong value"));
  if (evidence.probe_drift && !(std::abs(*evidence.probe_drift) <= most_drift))
    return fmt::format("probe drift {:.1f} %, at most {:.0f} % wanted", 100 * std::abs(*evidence.probe_drift),
                       100 * most_drift);
  if (evidence.seconds < evidence.least_seconds)
    return fmt::format("{:.1f} s, {:.1f} s wanted", evidence.seconds, evidence.least_seconds);
  return {};
}

std::string noise_in(const std::vector<NamedInterval>& results) {
  if (std::ranges::any_of(results, [](const auto& result) { return std::isnan(half_width(result)); }))
    return "too few repeats for a 95 % interval, 6 wanted";
  const auto wide =
      std::ranges::count_if(results, [](const auto& result) { return half_width(result) > widest; });
  if (wide == 0) return {};
  const NamedInterval& worst = *std::ranges::max_element(results, {}, half_width);
  return fmt::format("half CI {:.1f} % > {:.0f} % ({}; {} of {} results)", 100 * half_width(worst),
                     100 * widest, worst.name, wide, results.size());
}

}  // namespace

Verdict judge(const Evidence& evidence) {
  if (std::string reason = reason_against(evidence); !reason.empty())
    return {Quality::invalid, std::move(reason)};
  if (std::string noise = noise_in(evidence.results); !noise.empty())
    return {Quality::noisy, std::move(noise)};
  return {};
}

std::string result_line(const Verdict& verdict) {
  return fmt::format("RESULT {}{}{}\n", name_of(verdict.quality), verdict.reason.empty() ? "" : ": ",
                     verdict.reason);
}

}  // namespace maniple
