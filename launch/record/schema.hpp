// The tables of a run's record: rows of plain bytes whose fields a schema describes. The schema is stored with the rows,
// so a later version reads the records of an earlier one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

inline constexpr std::string_view record_schema = "maniple-run", record_version = "1.0";

enum class FieldType : uint8_t { u32, u64, i32, f64, text };  // text: padded with zero bytes

struct RecordField {
  std::string name;
  FieldType type = FieldType::u64;
  uint32_t offset = 0;  // in the row
  uint32_t bytes = 8;
  std::string unit;  // "s", "B", "tokens"; empty: a plain number

  bool operator==(const RecordField&) const = default;
};

struct RecordTable {
  std::string name;
  uint32_t row_bytes = 0;
  std::vector<RecordField> fields;

  const RecordField* find(std::string_view field) const;
  bool operator==(const RecordTable&) const = default;
};

// Rows of the tables that runtime/control/observer.hpp does not have.
struct TopologyRow {
  int32_t rank = 0, node = 0, local_rank = 0, tensor = 0, pipeline = 0, data = 0;
  int32_t context = 0, expert = 0;  // of the tensor group: which positions, which experts it holds
  char host[64] = {}, cpus[64] = {}, gpu_uuid[48] = {};
};
// A rank at the end of the job.
struct RankRow {
  int32_t rank = 0;
  uint32_t steps = 0;
  double load_s = 0, prefill_s = 0, decode_s = 0, comm_s = 0, idle_s = 0;
  uint64_t weight_bytes = 0, kv_bytes = 0, scratch_bytes = 0, rss_peak_bytes = 0;
  uint64_t fitting_blocks = 0;  // KV blocks that its memory has room for
};
// What a rank had in sum when its heartbeat arrived. node_j: the node's energy since the start, from the first rank of
// each node; NaN elsewhere, and where no counter can be read.
struct RankSeriesRow {
  double t_s = 0;
  int32_t rank = 0;
  uint32_t reserved = 0;
  uint64_t steps = 0;
  double prefill_s = 0, decode_s = 0, comm_s = 0, idle_s = 0;
  uint64_t rss_bytes = 0;
  double node_j = 0;
};
// The calls of one collective operation in one group of a rank, by size: 2^log2_bytes and more, less than twice that. In
// captured graphs seconds are NaN.
struct GroupRow {
  int32_t rank = 0;
  uint32_t log2_bytes = 0;
  char axis[16] = {}, op[24] = {};
  uint64_t calls = 0, bytes = 0;
  double seconds = 0, max_s = 0;
};
// One repetition's number, and below what several repetitions gave: the 95 % interval of the median, NaN where
// there are too few.
struct SampleRow {
  char metric[48] = {}, unit[16] = {};
  uint64_t repeat = 0;
  double value = 0;
};
struct SummaryRow {
  char metric[48] = {}, unit[16] = {};
  uint64_t n = 1;
  double median = 0, low = 0, high = 0;
};
// A part of a step of a model (launch/tools/bench/kernels): the median time of the slowest rank, its 95 % interval, and what a rank
// computes and moves.
struct KernelRow {
  char part[16] = {};
  int32_t tensor = 1;   // ranks that share the model
  uint32_t layers = 1;  // measured one after the other
  uint64_t tokens = 0, context = 0;
  double time_s = 0, low_s = 0, high_s = 0, flops = 0, bytes = 0;
};
// What a rank can do at most, before and after what was measured.
struct RooflineRow {
  char when[8] = {};  // "before", "after"
  int32_t rank = 0;
  uint32_t reserved = 0;
  double flops_per_s = 0, read_bytes_per_s = 0;
};

// Cut where it does not fit.
template <size_t Size>
void copy_text(std::string_view text, char (&to)[Size]) {
  text.copy(to, Size - 1);
}

// The index in this list is the kind of a table's frames in a log, plus first_table_frame.
const std::vector<RecordTable>& record_tables();
enum class TableId : uint32_t {
  topology,
  steps,
  requests,
  ranks,
  rank_series,
  groups,
  samples,
  summary,
  kernels,
  roofline
};

// Throws Error (input) on a field that has not the bytes of its type, or leaves the row.
void check_field(const RecordField& field, const RecordTable& table, std::string_view where);
// As JSON, and back. Throws Error (input) on a schema that cannot be understood: a row's fields must lie in the row.
std::string schema_json(const std::vector<RecordTable>& tables);
std::vector<RecordTable> parse_schema(std::string_view json, std::string_view where);

}  // namespace maniple
