// Scaling studies whose launches never ran.
#pragma once

#include <launch/record/record_file.hpp>
#include <launch/tools/scaling/study_launches.hpp>
#include <support/made_records.hpp>

#include <nlohmann/json.hpp>

namespace maniple {

// What a launch of the study leaves: three repeats at this rate and 2 % beside it, on nodes of two ranks.
inline Record made_launch(const Study& study, const StudyPoint& point, double tokens_per_s) {
  Record record = empty_record();
  nlohmann::json given = study.workload;
  given["tp"] = std::to_string(point.tensor);
  given["num-prompts"] = std::to_string(study.prompts_of(point));
  record.texts = {{"command", "bench throughput"},
                  {"git_commit", "1a2b3c4"},
                  {"model_hash", study.model_hash},
                  {"options", nlohmann::json{{"given", given}}.dump()}};
  for (int rank = 0; rank < point.ranks(); ++rank)
    add_place(record, rank, rank / 2, rank % point.tensor, rank / point.tensor);
  for (const auto& [repeat, factor] : {std::pair(0, 0.98), {1, 1.0}, {2, 1.02}})
    add_sample(record, "out_tok_per_s", "tok/s", static_cast<uint64_t>(repeat), factor * tokens_per_s);
  return record;
}

inline void write_launch(const Study& study, const std::filesystem::path& folder, const StudyPoint& point,
                         int round, double tokens_per_s) {
  const std::filesystem::path place = folder / place_of(point, round);
  std::filesystem::create_directories(place);
  write_record_file(made_launch(study, point, tokens_per_s), place / record_file_name);
}

}  // namespace maniple
