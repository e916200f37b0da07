// Values of options that are no plain numbers, texts or choices; for options.cpp.
#pragma once

#include <launch/options.hpp>
#include <launch/options/grammar.hpp>

#include <charconv>
#include <string>
#include <string_view>

namespace maniple {

inline Shard parse_shard(const std::string& name, const std::string& given) {
  Shard shard;
  const char* end = given.data() + given.size();
  const auto [slash, bad_index] = std::from_chars(given.data(), end, shard.index);
  const bool divided = bad_index == std::errc{} && slash != end && *slash == '/';
  if (!divided || std::from_chars(slash + 1, end, shard.count).ptr != end || shard.index >= shard.count)
    refuse(fmt::format("--{} ({}) must be I/N with I from 0 to N - 1", name, given),
           "in a job array from 0 to N - 1 (sbatch --array=0-15): --shard "
           "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT");
  return shard;
}

inline FailOn parse_fail_on(const std::string& name, const std::string& given) {
  if (given == "any") return {0};
  if (given == "none") return {100};
  double percent = 0;
  const char* end = given.data() + given.size();
  const auto [stopped, error] = std::from_chars(given.data(), end, percent);
  if (error != std::errc{} || std::string_view(stopped, end) != "%" || !(percent >= 0 && percent <= 100))
    refuse(fmt::format("--{} ({}) must be any, none or a percentage", name, given), "--fail-on 5%");
  return {percent};
}

}  // namespace maniple
