// A scaling study: what its launches measure, kept in DIR/study.json, and the command line of each.
#pragma once

#include <launch/tools/options/scaling_options.hpp>
#include <layers/model_config.hpp>

#include <filesystem>
#include <string>

namespace maniple {

inline constexpr const char* study_file_name = "study.json";

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
