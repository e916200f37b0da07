// A scaling study: what its launches measure, kept in DIR/study.json, and the command line of each.
#pragma once

#include <layers/model_config.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace maniple {

inline constexpr const char* study_file_name = "study.json";

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

struct Study : StudySettings {
  std::string model_hash;

  // What the study goes over; with a single point its replicas.
  const StudyAxis& axis() const;
  int64_t prompts_of(const StudyPoint& point) const {
    return int64_t{num_prompts} * (mode == ScalingMode::weak ? point.ranks() : 1);
  }
  int nodes_of(const StudyPoint& point) const {
    return (point.ranks() + ranks_per_node - 1) / ranks_per_node;
  }
};

// Throws Error (usage, input) where a point cannot run: by the options of bench throughput, or by the model's sizes.
Study make_study(const StudySettings& settings, std::string model_hash, const ModelConfig& config);

// Makes the folder. False if it holds this study already; throws Error (input) if it holds anything else.
bool write_study(const Study& study, const std::filesystem::path& folder);
bool is_study(const std::filesystem::path& folder);
// Throws Error (input) where there is no study, or none that this version understands.
Study read_study(const std::filesystem::path& folder);

// For captions: "strong scaling over dp (tp 1)"; "100 prompts a rank, fixed:128/128".
std::string title_of(const Study& study);
std::string work_of(const Study& study);

// "tp 1, dp 4"; with stages "tp 1, pp 2, dp 4".
std::string sizes_text(const StudyPoint& point);
// Where a launch keeps what it leaves, below the study's folder: "points/tp1-dp4/round-2".
std::filesystem::path place_of(const StudyPoint& point, int round);

// The words behind `maniple`, without those of the record.
std::vector<std::string> bench_of(const Study& study, const StudyPoint& point);
// A line for the shell. program: how maniple is started.
std::string command_of(const Study& study, const StudyPoint& point, const std::string& program,
                       const std::filesystem::path& record);

}  // namespace maniple
