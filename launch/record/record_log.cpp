#include <kernels/support/check.hpp>
#include <launch/record/record_log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace maniple {
namespace {

enum FrameKind : uint32_t { schema_frame = 0, text_frame = 1, complete_frame = 2, first_table_frame = 16 };

uint32_t frame_of(TableId table) { return first_table_frame + static_cast<uint32_t>(table); }

template <typename T>
T value_at(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

double number_at(FieldType type, const char* bytes) {
  switch (type) {
    case FieldType::u32:
      return value_at<uint32_t>(bytes);
    case FieldType::u64:
      return static_cast<double>(value_at<uint64_t>(bytes));
    case FieldType::i32:
      return value_at<int32_t>(bytes);
    case FieldType::f64:
      return value_at<double>(bytes);
    case FieldType::text:
      break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

RecordLogWriter::RecordLogWriter(std::filesystem::path path) : frames_(std::move(path)) {
  frames_.lock();
  frames_.append({schema_frame, 0, std::string(record_version) + '\0' + schema_json(record_tables())});
}

void RecordLogWriter::text(const std::string& name, const std::string& text) {
  frames_.append({text_frame, 0, name + '\0' + text});
}

void RecordLogWriter::append_rows(TableId table, std::string_view bytes, uint64_t count) {
  if (!bytes.empty()) frames_.append({frame_of(table), count, bytes});
}

void RecordLogWriter::complete() { frames_.append({complete_frame, 0, {}}); }

std::vector<double> StoredTable::column(std::string_view name) const {
  const RecordField* field = table.find(name);
  std::vector<double> numbers(size(), std::numeric_limits<double>::quiet_NaN());
  for (size_t row = 0; field && row < numbers.size(); ++row)
    numbers[row] = number_at(field->type, rows.data() + row * table.row_bytes + field->offset);
  return numbers;
}

std::string StoredTable::text_at(std::string_view name, size_t row) const {
  const RecordField* field = table.find(name);
  if (!field || field->type != FieldType::text) return {};
  const char* text = rows.data() + row * table.row_bytes + field->offset;
  return {text, strnlen(text, field->bytes)};
}

std::string text_in(const Record& record, const std::string& name) {
  const auto found = record.texts.find(name);
  return found == record.texts.end() ? std::string() : found->second;
}

const StoredTable* Record::find(std::string_view name) const {
  const auto found =
      std::ranges::find(tables, name, [](const StoredTable& stored) { return stored.table.name; });
  return found == tables.end() ? nullptr : &*found;
}

void check_record_version(const std::string& version, const std::filesystem::path& path) {
  const auto major = [](std::string_view text) { return text.substr(0, text.find('.')); };
  if (major(version) != major(record_version))
    throw Error(ExitCode::input,
                fmt::format("{} is a record of schema {}, and this version reads {}", path.string(), version,
                            record_version),
                "its fields may mean something else", "read it with the version of maniple that wrote it");
}

Record read_record_log(const std::filesystem::path& path) {
  FrameReader frames(path);
  Record record;
  while (const auto entry = frames.next()) {
    const auto& [kind, tag, bytes] = entry->frame;
    const size_t zero = bytes.find('\0');
    if (entry->offset == 0) {
      if (kind != schema_frame || zero == std::string_view::npos)
        fail(ExitCode::input, "{} is no log of a record", path.string());
      record.version = bytes.substr(0, zero);
      check_record_version(record.version, path);
      for (RecordTable& table : parse_schema(bytes.substr(zero + 1), path.string()))
        record.tables.push_back({std::move(table), {}});
    } else if (kind == text_frame && zero != std::string_view::npos) {
      record.texts[std::string(bytes.substr(0, zero))] = bytes.substr(zero + 1);
    } else if (kind == complete_frame) {
      record.complete = true;
    } else if (kind >= first_table_frame && kind - first_table_frame < record.tables.size()) {
      StoredTable& stored = record.tables[kind - first_table_frame];
      if (tag * stored.table.row_bytes == bytes.size()) stored.rows += bytes;
    }
  }
  if (record.version.empty()) fail(ExitCode::input, "{} is no log of a record", path.string());
  record.dropped_bytes = frames.dropped_bytes();
  return record;
}

bool is_left_over(const std::filesystem::path& log) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(log, ignored) || is_locked(log)) return false;
  try {
    return !read_record_log(log).complete;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace maniple
