#include <kernels/support/check.hpp>
#include <launch/record/schema.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/control/observer.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace maniple {
namespace {

template <typename T>
constexpr FieldType type_of() {
  if constexpr (std::is_array_v<T>) return FieldType::text;
  if constexpr (std::is_same_v<T, double>) return FieldType::f64;
  if constexpr (std::is_same_v<T, int32_t>) return FieldType::i32;
  if constexpr (std::is_same_v<T, uint32_t>) return FieldType::u32;
  static_assert(sizeof(T) >= 4);
  return FieldType::u64;
}

// A field of the row type that is called Row where this is used.
#define FIELD(name, unit) \
  RecordField { #name, type_of < decltype(Row::name)>(), offsetof(Row, name), sizeof(Row::name), unit }

template <class Row>
RecordTable table(std::string_view name, std::vector<RecordField> fields) {
  return {std::string(name), sizeof(Row), std::move(fields)};
}

RecordTable topology_table() {
  using Row = TopologyRow;
  return table<Row>("topology", {FIELD(rank, ""), FIELD(host, ""), FIELD(node, ""), FIELD(local_rank, ""),
                                 FIELD(tensor, ""), FIELD(pipeline, ""), FIELD(data, ""), FIELD(context, ""),
                                 FIELD(expert, ""), FIELD(cpus, ""), FIELD(gpu_uuid, "")});
}

RecordTable steps_table() {
  using Row = StepRow;
  return table<Row>("steps", {FIELD(step, ""),
                              FIELD(replica, ""),
                              FIELD(weight, "steps"),
                              FIELD(planned_s, "s"),
                              FIELD(answered_s, "s"),
                              FIELD(schedule_s, "s"),
                              FIELD(transit_s, "s"),
                              FIELD(forward_s, "s"),
                              FIELD(sample_s, "s"),
                              FIELD(comm_s, "s"),
                              FIELD(sequences, ""),
                              FIELD(tokens, "tokens"),
                              FIELD(prompt_tokens, "tokens"),
                              FIELD(sampled, "tokens"),
                              FIELD(context, "tokens"),
                              FIELD(attended, "positions"),
                              FIELD(plan_bytes, "B"),
                              FIELD(result_bytes, "B"),
                              FIELD(waiting, "requests"),
                              FIELD(running, "requests"),
                              FIELD(free_blocks, "blocks"),
                              FIELD(held_blocks, "blocks"),
                              FIELD(held_window_blocks, "blocks"),
                              FIELD(kv_tokens, "tokens"),
                              FIELD(preemptions, "")});
}

RecordTable requests_table() {
  using Row = RequestRow;
  return table<Row>("requests",
                    {FIELD(id, ""), FIELD(replica, ""), FIELD(reason, ""), FIELD(prompt, "tokens"),
                     FIELD(cached, "tokens"), FIELD(output, "tokens"), FIELD(preemptions, ""),
                     FIELD(arrival_s, "s"), FIELD(admitted_s, "s"), FIELD(first_s, "s"), FIELD(done_s, "s"),
                     FIELD(queue_s, "s"), FIELD(ttft_s, "s"), FIELD(tpot_s, "s"), FIELD(itl_p50_s, "s"),
                     FIELD(itl_p90_s, "s"), FIELD(itl_p99_s, "s"), FIELD(itl_max_s, "s"), FIELD(e2e_s, "s")});
}

RecordTable ranks_table() {
  using Row = RankRow;
  return table<Row>("ranks", {FIELD(rank, ""), FIELD(steps, ""), FIELD(load_s, "s"), FIELD(prefill_s, "s"),
                              FIELD(decode_s, "s"), FIELD(comm_s, "s"), FIELD(idle_s, "s"),
                              FIELD(weight_bytes, "B"), FIELD(kv_bytes, "B"), FIELD(scratch_bytes, "B"),
                              FIELD(rss_peak_bytes, "B"), FIELD(fitting_blocks, "blocks")});
}

RecordTable rank_series_table() {
  using Row = RankSeriesRow;
  return table<Row>("rank_series", {FIELD(t_s, "s"), FIELD(rank, ""), FIELD(steps, ""), FIELD(prefill_s, "s"),
                                    FIELD(decode_s, "s"), FIELD(comm_s, "s"), FIELD(idle_s, "s"),
                                    FIELD(rss_bytes, "B"), FIELD(node_j, "J")});
}

RecordTable groups_table() {
  using Row = GroupRow;
  return table<Row>("groups", {FIELD(rank, ""), FIELD(axis, ""), FIELD(op, ""), FIELD(log2_bytes, ""),
                               FIELD(calls, ""), FIELD(bytes, "B"), FIELD(seconds, "s"), FIELD(max_s, "s")});
}

RecordTable samples_table() {
  using Row = SampleRow;
  return table<Row>("samples",
                    {FIELD(metric, ""), FIELD(unit, ""), FIELD(repeat, ""), FIELD(value, "the metric's")});
}

RecordTable summary_table() {
  using Row = SummaryRow;
  return table<Row>("summary",
                    {FIELD(metric, ""), FIELD(unit, ""), FIELD(n, ""), FIELD(median, "the metric's"),
                     FIELD(low, "the metric's"), FIELD(high, "the metric's")});
}

RecordTable kernels_table() {
  using Row = KernelRow;
  return table<Row>("kernels", {FIELD(part, ""), FIELD(tensor, "ranks"), FIELD(layers, ""),
                                FIELD(tokens, "tokens"), FIELD(context, "tokens"), FIELD(time_s, "s"),
                                FIELD(low_s, "s"), FIELD(high_s, "s"), FIELD(flops, ""), FIELD(bytes, "B")});
}

RecordTable roofline_table() {
  using Row = RooflineRow;
  return table<Row>("roofline", {FIELD(when, ""), FIELD(rank, ""), FIELD(flops_per_s, "1/s"),
                                 FIELD(read_bytes_per_s, "B/s")});
}

#undef FIELD

constexpr std::array type_names = {"u32", "u64", "i32", "f64", "text"};
constexpr std::array<uint32_t, 4> type_bytes = {4, 8, 4, 8};

}  // namespace

const RecordField* RecordTable::find(std::string_view field) const {
  const auto found = std::ranges::find(fields, field, &RecordField::name);
  return found == fields.end() ? nullptr : &*found;
}

const std::vector<RecordTable>& record_tables() {
  static const std::vector<RecordTable> tables = {
      topology_table(), steps_table(),   requests_table(), ranks_table(),   rank_series_table(),
      groups_table(),   samples_table(), summary_table(),  kernels_table(), roofline_table()};
  return tables;
}

std::string schema_json(const std::vector<RecordTable>& tables) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RecordTable& table : tables) {
    nlohmann::ordered_json fields = nlohmann::ordered_json::array();
    for (const RecordField& field : table.fields)
      fields.push_back({{"name", field.name},
                        {"type", type_names[static_cast<size_t>(field.type)]},
                        {"offset", field.offset},
                        {"bytes", field.bytes},
                        {"unit", field.unit}});
    list.push_back({{"name", table.name}, {"row_bytes", table.row_bytes}, {"fields", fields}});
  }
  return list.dump();
}

void check_field(const RecordField& field, const RecordTable& table, std::string_view where) {
  const auto type = static_cast<size_t>(field.type);
  const bool has_its_size = type >= type_bytes.size() ? field.bytes > 0 : field.bytes == type_bytes[type];
  if (!has_its_size || uint64_t{field.offset} + field.bytes > table.row_bytes)
    fail(ExitCode::input, "{}: field {} of table {} does not lie in its row", where, field.name, table.name);
}

std::vector<RecordTable> parse_schema(std::string_view json, std::string_view where) try {
  std::vector<RecordTable> tables;
  for (const nlohmann::json& table : nlohmann::json::parse(json)) {
    RecordTable& parsed = tables.emplace_back();
    parsed.name = table.at("name");
    parsed.row_bytes = table.at("row_bytes");
    for (const nlohmann::json& field : table.at("fields")) {
      const auto type = std::ranges::find(type_names, field.at("type").get<std::string>());
      const auto index = static_cast<size_t>(type - type_names.begin());
      const RecordField& added =
          parsed.fields.emplace_back(RecordField{field.at("name"), static_cast<FieldType>(index),
                                                 field.at("offset"), field.at("bytes"), field.at("unit")});
      if (type == type_names.end()) fail(ExitCode::input, "{}: field {} has no type", where, added.name);
      check_field(added, parsed, where);
    }
  }
  return tables;
} catch (const nlohmann::json::exception& error) {
  fail(ExitCode::input, "{}: its schema cannot be understood: {}", where, json_flaw(json, error));
}

}  // namespace maniple
