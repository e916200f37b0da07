// What a scaling study says. README.md has the formulas. NaN: not measured.
#pragma once

#include <launch/tools/analysis/statistics.hpp>
#include <launch/tools/scaling/study_launches.hpp>

#include <string>
#include <vector>

namespace maniple {

struct ScalingRow {
  StudyPoint point;
  int nodes = 0;
  std::vector<double> tokens_per_s = {};  // output, of each launch: the median of its repeats
  Interval rate = {not_measured, not_measured, not_measured};  // of the launches
  double smallest = not_measured, largest = not_measured;      // launch
  double speed_up = not_measured, efficiency = not_measured;
  double karp_flatt = not_measured;
  std::string verdict = {};  // VALID, NOISY or INVALID; empty without launches
  std::string reason = {};   // of INVALID
};

struct ScalingResult {
  Study study;
  std::vector<ScalingRow> rows;          // by point; the first one is the reference
  double serial_fraction;                // of Amdahl's law; NaN for weak scaling
  std::vector<StudyLaunch> missing;      // launches without a record
  std::vector<std::string> differences;  // between the launches: of version or type
};

// launches: of the study.
ScalingResult scaling_of(const Study& study, std::vector<StudyLaunch> launches);

}  // namespace maniple
