#include <launch/record/energy_counters.hpp>

#include <fstream>
#include <limits>
#include <optional>

namespace maniple {

namespace fs = std::filesystem;

namespace {

// The number that a counter's file begins with.
std::optional<double> read_number(const fs::path& path) {
  double value = 0;
  return std::ifstream(path) >> value ? std::optional(value) : std::nullopt;
}

// "intel-rapl:0", not its parts "intel-rapl:0:0" and not "intel-rapl-mmio:0", which counts the same again.
bool is_package(const std::string& name) {
  constexpr std::string_view prefix = "intel-rapl:";
  return name.starts_with(prefix) && name.find(':', prefix.size()) == name.npos;
}

}  // namespace

EnergyCounters::EnergyCounters(const fs::path& root) {
  const fs::path cray = root / "sys/cray/pm_counters/energy", rapl = root / "sys/class/powercap";
  std::error_code none;
  if (fs::exists(cray, none)) {
    counters_.push_back({cray, 1, 0});
  } else {
    for (fs::directory_iterator entry(rapl, none), end; !none && entry != end; entry.increment(none))
      if (is_package(entry->path().filename()))
        counters_.push_back({entry->path() / "energy_uj", 1e-6,
                             read_number(entry->path() / "max_energy_range_uj").value_or(0)});
  }
  for (Counter& counter : counters_) {
    const std::optional<double> now = read_number(counter.path);
    if (!now) joules_ = std::numeric_limits<double>::quiet_NaN();
    counter.last = now.value_or(0);
  }
  if (counters_.empty()) joules_ = std::numeric_limits<double>::quiet_NaN();
}

double EnergyCounters::joules() {
  for (Counter& counter : counters_) {
    const std::optional<double> now = read_number(counter.path);
    double used = now ? *now - counter.last : std::numeric_limits<double>::quiet_NaN();
    if (used < 0) used = counter.range > 0 ? used + counter.range : std::numeric_limits<double>::quiet_NaN();
    counter.last = now.value_or(counter.last);
    joules_ += used * counter.unit;
  }
  return joules_;
}

}  // namespace maniple
