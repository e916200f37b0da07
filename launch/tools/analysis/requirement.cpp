#include <kernels/support/check.hpp>
#include <kernels/support/number_text.hpp>
#include <launch/tools/analysis/requirement.hpp>

#include <fmt/format.h>

namespace maniple {
namespace {

const Metric& metric_of(const Summary& summary, const std::string& name) {
  if (const Metric* const metric = summary.find(name)) return *metric;
  std::string known;
  for (const Metric& metric : summary.metrics) known += (known.empty() ? "" : ", ") + metric.name;
  throw Error(ExitCode::input, fmt::format("the record has no number called {}", name), "",
              known.empty() ? "" : "it has " + known);
}

}  // namespace

void check_requirement(const Requirement& requirement, const Summary* a, const Summary& b) {
  const double of_b = metric_of(b, requirement.metric).median();
  const double of_a = requirement.relative && a ? metric_of(*a, requirement.metric).median() : 1;
  const double found = of_b / of_a;
  const bool holds = requirement.at_least ? found >= requirement.bound : found <= requirement.bound;
  if (holds) return;
  const std::string values = requirement.relative ? fmt::format("{:.4g}x: {} against {}", found,
                                                                number_text(of_b), number_text(of_a))
                                                  : number_text(found);
  throw Error(ExitCode::some_requests_failed,
              fmt::format("missed: {} was wanted, {} was found", requirement.text, values));
}

}  // namespace maniple
