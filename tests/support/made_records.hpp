// Records of jobs that never ran.
#pragma once

#include <launch/record/record_log.hpp>
#include <runtime/control/observer.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

namespace maniple {

inline constexpr double not_recorded = std::numeric_limits<double>::quiet_NaN();

inline Record empty_record() {
  Record record;
  record.version = record_version;
  record.complete = true;
  for (const RecordTable& table : record_tables()) record.tables.push_back({table, {}});
  return record;
}

template <typename Row>
void add_row(Record& record, TableId table, const Row& row) {
  record.tables[static_cast<size_t>(table)].rows.append(reinterpret_cast<const char*>(&row), sizeof row);
}

template <size_t size>
void set_text(char (&field)[size], std::string_view text) {
  text.copy(field, size - 1);
}

inline void add_sample(Record& record, const char* metric, const char* unit, uint64_t repeat, double value) {
  SampleRow row{.repeat = repeat, .value = value};
  set_text(row.metric, metric);
  set_text(row.unit, unit);
  add_row(record, TableId::samples, row);
}

inline void add_place(Record& record, int rank, int node, int tensor, int data) {
  TopologyRow row{.rank = rank, .node = node, .local_rank = 0, .tensor = tensor, .pipeline = 0, .data = data};
  row.host[0] = 'n';
  row.host[1] = static_cast<char>('1' + node);
  set_text(row.cpus, "0-3,8");
  add_row(record, TableId::topology, row);
}

struct MadeJob {
  double speed = 1;
  std::string model_hash = "aaaa";
  int slow_rank = -1;   // from 10 s to 30 s, by a quarter
  double seconds = 40;  // of serving
  bool complete = true;
  double node_joules[2] = {not_recorded, not_recorded};
};

// Four ranks on two nodes, tensor 2 x data 2, with steps of 50 ms.
inline Record made_job(const MadeJob& job) {
  Record record = empty_record();
  record.complete = job.complete;
  record.texts = {{"command", "generate"},
                  {"version", "0.1.0"},
                  {"git_commit", "1a2b3c4"},
                  {"model_path", "models/m"},
                  {"model_hash", job.model_hash},
                  {"input_hash", "bbbb"},
                  {"dtype", "bf16"},
                  {"repro_level", "batch"},
                  {"options", R"({"in_force": {"block_size": 16}})"}};
  for (int rank = 0; rank < 4; ++rank) add_place(record, rank, rank / 2, rank % 2, rank / 2);
  const double step_s = 0.05 / job.speed;
  for (uint32_t replica = 0; replica < 2; ++replica) {
    for (uint64_t number = 0; static_cast<double>(number + 1) * step_s <= job.seconds * (1 + 1e-9);
         ++number) {
      StepRow row{};
      row.step = number;
      row.replica = replica;
      row.weight = 1;
      row.planned_s = static_cast<double>(number) * step_s;
      row.answered_s = static_cast<double>(number + 1) * step_s;
      row.tokens = 8 + 8 * replica + number % 4;
      row.context = row.tokens * 100;
      row.forward_s = step_s * 0.6 + 1e-4 * static_cast<double>(row.tokens);
      row.comm_s = step_s * 0.1;
      row.sequences = row.sampled = row.tokens;
      row.held_blocks = 20;
      row.free_blocks = 80;
      row.kv_tokens = 240;
      add_row(record, TableId::steps, row);
    }
  }
  for (uint64_t id = 0; id < 20; ++id) {
    RequestRow row{};
    row.id = id;
    row.replica = id % 2;
    row.prompt = 100;
    row.output = 21;
    row.admitted_s = 0.1;
    row.ttft_s = (0.1 + 0.01 * static_cast<double>(id)) / job.speed;
    row.first_s = row.admitted_s + row.ttft_s;
    row.tpot_s = row.itl_p50_s = row.itl_p90_s = row.itl_p99_s = row.itl_max_s = step_s;
    row.done_s = row.first_s + 20 * row.tpot_s;
    row.e2e_s = row.done_s;
    add_row(record, TableId::requests, row);
  }
  for (int beat = 0; beat * 2 <= job.seconds; ++beat)
    for (int rank = 0; rank < 4; ++rank) {
      const double time = beat * 2;
      const double slowed = rank == job.slow_rank ? std::clamp(time - 10, 0.0, 20.0) : 0;
      RankSeriesRow row{};
      row.t_s = time + 0.01 * rank;
      row.rank = rank;
      row.steps = static_cast<uint64_t>(row.t_s / step_s);
      row.decode_s = 0.9 * row.t_s;
      row.comm_s = 0.4 * row.t_s - 0.125 * slowed;  // it computes 0.625 instead of 0.5 of the time
      row.rss_bytes = 100 << 20;
      row.node_j = rank % 2 == 0 ? job.node_joules[rank / 2] : not_recorded;
      add_row(record, TableId::rank_series, row);
    }
  for (int rank = 0; job.complete && rank < 4; ++rank) {
    RankRow row{};
    row.rank = rank;
    row.load_s = 1 + rank;
    row.decode_s = 0.9 * job.seconds;
    row.comm_s = 0.4 * job.seconds;
    row.idle_s = 0.1 * job.seconds;
    row.weight_bytes = 50 << 20;
    row.kv_bytes = 20 << 20;
    row.scratch_bytes = static_cast<uint64_t>(rank == 2 ? 30 << 20 : 10 << 20);
    row.rss_peak_bytes = 100 << 20;
    row.fitting_blocks = rank == 2 ? 80 : 100;
    add_row(record, TableId::ranks, row);
  }
  for (uint64_t repeat = 0; repeat < 6; ++repeat)
    add_sample(record, "out_tok_per_s", "tok/s", repeat,
               job.speed * (250 + static_cast<double>(repeat * 7 % 6) * 0.5));
  return record;
}

// The same rows as a log.
inline void write_log(const Record& record, const std::filesystem::path& path) {
  RecordLogWriter log(path);
  for (const auto& [name, text] : record.texts) log.text(name, text);
  for (size_t table = 0; table < record.tables.size(); ++table) {
    const std::string& rows = record.tables[table].rows;
    const auto add = [&]<typename Row>(const Row*) {
      log.rows(static_cast<TableId>(table),
               std::span(reinterpret_cast<const Row*>(rows.data()), rows.size() / sizeof(Row)));
    };
    switch (static_cast<TableId>(table)) {
      case TableId::topology:
        add(static_cast<TopologyRow*>(nullptr));
        break;
      case TableId::steps:
        add(static_cast<StepRow*>(nullptr));
        break;
      case TableId::requests:
        add(static_cast<RequestRow*>(nullptr));
        break;
      case TableId::ranks:
        add(static_cast<RankRow*>(nullptr));
        break;
      case TableId::rank_series:
        add(static_cast<RankSeriesRow*>(nullptr));
        break;
      case TableId::groups:
        add(static_cast<GroupRow*>(nullptr));
        break;
      case TableId::samples:
        add(static_cast<SampleRow*>(nullptr));
        break;
      case TableId::summary:
        add(static_cast<SummaryRow*>(nullptr));
        break;
      default:
        break;
    }
  }
  if (record.complete) log.complete();
  log.sync();
}

}  // namespace maniple
