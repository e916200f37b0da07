// How far a study has come. A launch is one point in one round.
#pragma once

#include <launch/record/record_log.hpp>
#include <launch/tools/scaling/study.hpp>

#include <optional>
#include <string>
#include <vector>

namespace maniple {

// A launch that ends with any other code than those of a stop, and leaves no record of its own, has failed.
inline constexpr size_t most_attempts = 2;

struct StudyLaunch {
  StudyPoint point;
  int round = 1;
  std::filesystem::path folder;
  std::optional<Record> record;       // complete, and of this launch
  std::vector<std::string> attempts;  // exit codes of those that ended by themselves

  bool skipped() const { return !record && attempts.size() >= most_attempts; }
  bool waits() const { return !record && !skipped(); }
};

// In the order in which they run: round after round, so that a drift of the machine meets every point.
std::vector<StudyLaunch> launches_of(const Study& study, const std::filesystem::path& folder);

// Why a record does not count; empty if it does.
std::string reason_against(const Record& record, const Study& study, const StudyPoint& point);

}  // namespace maniple
