// What each rank of a job did in sum, and where it ran.
#pragma once

#include <launch/record/record_log.hpp>

#include <array>
#include <string>
#include <vector>

namespace maniple {

// Seconds, bytes and joules; NaN: not recorded.
struct RecordedRank {
  int rank = 0, node = 0, local_rank = 0, tensor = 0, pipeline = 0, data = 0;
  std::string host;
  double steps, load_s, prefill_s, decode_s, comm_s, idle_s;
  double weight_bytes, kv_bytes, scratch_bytes, rss_peak_bytes;
  double node_j;          // of the node, from its first rank
  double fitting_blocks;  // KV blocks that the rank alone had room for

  double own_s() const { return prefill_s + decode_s - comm_s; }  // without waiting for others
};

// In the order of the ranks: as they said at the end, else with their last heartbeats.
std::vector<RecordedRank> recorded_ranks(const Record& record);

struct RankMeasure {
  const char* name;
  const char* recorded_as;
  double RecordedRank::*field;
};
inline constexpr std::array<RankMeasure, 5> rank_phases = {
    {{"load", "load_s", &RecordedRank::load_s},
     {"prefill", "prefill_s", &RecordedRank::prefill_s},
     {"decode", "decode_s", &RecordedRank::decode_s},
     {"comm", "comm_s", &RecordedRank::comm_s},
     {"idle", "idle_s", &RecordedRank::idle_s}}};
inline constexpr std::array<RankMeasure, 4> rank_memory = {
    {{"weights", "weight_bytes", &RecordedRank::weight_bytes},
     {"KV", "kv_bytes", &RecordedRank::kv_bytes},
     {"scratch", "scratch_bytes", &RecordedRank::scratch_bytes},
     {"peak", "rss_peak_bytes", &RecordedRank::rss_peak_bytes}}};

std::vector<double> values_of(const std::vector<RecordedRank>& ranks, double RecordedRank::*field);

// The node's counters, where its ranks could read them.
struct Energy {
  int nodes = 0, readable = 0;
  double joules = 0;  // of the readable nodes
};
Energy energy_of(const std::vector<RecordedRank>& ranks);

}  // namespace maniple
