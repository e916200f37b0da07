#include <launch/tools/analysis/compare.hpp>
#include <launch/tools/analysis/summary_text.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <utility>

namespace maniple {

using json = nlohmann::ordered_json;

namespace {

// Fewer on each side may lie apart by chance in more than one of twenty comparisons, even if they do not overlap.
constexpr size_t fewest_repeats = 4;

std::string verdict_of(const Comparison& row) {
  if (row.n_a < 2 || row.n_b < 2) return "not tested: repeats are the unit";
  if (row.n_a < fewest_repeats || row.n_b < fewest_repeats)
    return fmt::format("not tested: fewer than {} repeats", fewest_repeats);
  if (!(row.ratio.low > 1 || row.ratio.high < 1)) return "no difference seen";
  const bool more = row.ratio.low > 1;
  if (row.unit.ends_with("/s")) return more ? "B is faster" : "B is slower";
  if (row.unit == "s" || row.unit == "ms" || row.unit == "us") return more ? "B is slower" : "B is faster";
  return more ? "B is higher" : "B is lower";
}

Comparison compare(const Metric& a, const Metric& b) {
  Comparison row{a.name,
                 a.unit,
                 median_interval(a.values),
                 median_interval(b.values),
                 ratio_interval(a.values, b.values),
                 a.values.size(),
                 b.values.size(),
                 {}};
  if (row.n_a < fewest_repeats || row.n_b < fewest_repeats) row.ratio.low = row.ratio.high = not_measured;
  row.verdict = verdict_of(row);
  return row;
}

json in_json(const Interval& interval, size_t n) {
  return {{"median", interval.median}, {"low", interval.low}, {"high", interval.high}, {"n", n}};
}

}  // namespace

std::vector<std::string> differences_of(const RecordedRun& a, const RecordedRun& b) {
  std::vector<std::string> differences;
  for (const auto& [text, what] : {std::pair("model_hash", "the model"),
                                   {"input_hash", "the input"},
                                   {"dtype", "the type"},
                                   {"kv_cache_dtype", "the type of the KV cache"},
                                   {"repro_level", "the level of reproducibility"}}) {
    const std::string of_a = text_in(a.jobs.front().record, text),
                      of_b = text_in(b.jobs.front().record, text);
    // Records of older versions lack the type of the KV cache.
    if (text == std::string_view("kv_cache_dtype") && (of_a.empty() || of_b.empty())) continue;
    const char* const hash = std::string_view(text).ends_with("_hash") ? "hash " : "";
    if (of_a != of_b)
      differences.push_back(fmt::format("{} differs ({}{}, {}{})", what, hash, of_a, hash, of_b));
  }
  return differences;
}

std::vector<Comparison> compare(const Summary& a, const Summary& b) {
  std::vector<Comparison> rows;
  for (const Metric& metric : a.metrics)
    if (const Metric* const other = b.find(metric.name); other && other->unit == metric.unit)
      rows.push_back(compare(metric, *other));
  return rows;
}

std::string comparison_text(const std::vector<Comparison>& comparisons) {
  std::string text;
  for (const Comparison& row : comparisons)
    text += fmt::format("{:<18} A {:<28} B {:<28} B/A {:<22} (n {}, {})  {}\n", row.metric,
                        fmt::format("{} {}", interval_text(row.a), row.unit),
                        fmt::format("{} {}", interval_text(row.b), row.unit),
                        std::isnan(row.ratio.low) ? fmt::format("{:.3f}", row.ratio.median)
                                                  : fmt::format("{:.3f} [{:.3f}, {:.3f}]", row.ratio.median,
                                                                row.ratio.low, row.ratio.high),
                        row.n_a, row.n_b, row.verdict);
  return text;
}

std::string comparison_json(const Side& a, const Side& b, const std::vector<Comparison>& comparisons) {
  json object = {{"a", a.run.name}, {"b", b.run.name}, {"differences", differences_of(a.run, b.run)}};
  object["metrics"] = json::object();
  for (const Comparison& row : comparisons)
    object["metrics"][row.metric] = {
        {"unit", row.unit},
        {"a", in_json(row.a, row.n_a)},
        {"b", in_json(row.b, row.n_b)},
        {"ratio", {{"median", row.ratio.median}, {"low", row.ratio.low}, {"high", row.ratio.high}}},
        {"verdict", row.verdict}};
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace maniple
