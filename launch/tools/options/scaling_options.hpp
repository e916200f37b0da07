// `maniple scaling` and its options. One process, no weights, no MPI.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/options/parsed.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace maniple {

// strong: every point has the same work; weak: every rank has.
enum class ScalingMode : uint8_t { strong, weak };
constexpr std::string_view name_of(ScalingMode mode) {
  return mode == ScalingMode::strong ? "strong" : "weak";
}

// A size of the job.
struct StudyPoint {
  int tensor = 1, data = 1, pipeline = 1;
  int ranks() const { return tensor * pipeline * data; }
  bool operator==(const StudyPoint&) const = default;
};

// What a study may go over, by the names of its options.
struct StudyAxis {
  const char* name;
  int StudyPoint::*size;
};
inline constexpr std::array<StudyAxis, 3> study_axes = {
    {{"tp", &StudyPoint::tensor}, {"pp", &StudyPoint::pipeline}, {"dp", &StudyPoint::data}}};

inline constexpr int most_ranks = 1'000'000, most_rounds = 1000;

struct StudySettings {
  ScalingMode mode = ScalingMode::strong;
  std::filesystem::path model;
  std::vector<StudyPoint> points;  // ascending, over one axis
  int rounds = 3;                  // launches of each point
  std::string
      launcher;  // a line of the shell with {ranks}, perhaps {nodes}, {ranks_per_node}, {tp}, {pp}, {dp}
  int ranks_per_node = 0;                       // 0: not known, and {nodes} does not occur
  int num_prompts = 100;                        // weak: of each rank
  std::map<std::string, std::string> workload;  // further options of bench throughput, without dashes
};

struct ScalingOptions {
  bool plan = false;  // else next
  std::filesystem::path study;
  StudySettings settings;  // of plan
};

Parsed<ScalingOptions> parse_scaling(Grammar& grammar, Words args, const Launch& launch);
ExitCode run_scaling(const ScalingOptions& options);

}  // namespace maniple
