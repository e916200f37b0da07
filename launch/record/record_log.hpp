// The log of a record while its job runs. HDF5 is never open during a run: a killed writer may leave a file that nobody can
// open. Rows go into a framed log, and pack() (record_file.hpp) turns a log into an HDF5 file, after a normal end or a crash.
//
// The first frame is the schema. All frames: kind, tag, bytes =
//   0 schema    version of the record, JSON of the tables
//   1 text      tag: 0; "name", a zero byte, the text
//   2 complete  the job has ended by itself; the last frame
//   16 + i      rows of table i of the schema; tag: their number
#pragma once

#include <launch/record/schema.hpp>
#include <launch/run_directory/framed_log.hpp>

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace maniple {

inline constexpr const char *record_log_name = "record.log", *record_file_name = "record.h5";

class RecordLogWriter {
 public:
  // Fails (fault), as all calls do where the disk takes nothing more.
  explicit RecordLogWriter(std::filesystem::path path);

  void text(const std::string& name, const std::string& text);
  template <typename Row>
  void rows(TableId table, std::span<const Row> rows) {
    append_rows(table, {reinterpret_cast<const char*>(rows.data()), rows.size_bytes()}, rows.size());
  }
  // The job has ended by itself.
  void complete();

  uint64_t size() const { return frames_.size(); }
  void flush() { frames_.flush(); }
  void sync() { frames_.sync(); }

 private:
  void append_rows(TableId table, std::string_view bytes, uint64_t count);

  FrameWriter frames_;
};

// A table as it was stored, by this version or an earlier one.
struct StoredTable {
  RecordTable table;
  std::string rows;  // bytes

  size_t size() const { return rows.size() / std::max<size_t>(table.row_bytes, 1); }
  // The numbers of a field, by row; NaN if the table has none of that name.
  std::vector<double> column(std::string_view field) const;
  std::string text_at(std::string_view field, size_t row) const;
};

struct Record {
  std::string version;
  bool complete = false;       // the job has ended by itself
  uint64_t dropped_bytes = 0;  // of a log: after the last whole frame
  std::map<std::string, std::string> texts;
  std::vector<StoredTable> tables;

  const StoredTable* find(std::string_view table) const;
};
// A text of the provenance, empty if there is none.
std::string text_in(const Record& record, const std::string& name);

// Whether it is the log of a job that was killed: that nobody writes (as far as the file system has locks) and that has no end.
bool is_left_over(const std::filesystem::path& log);

// Reads as far as the log is whole. Throws Error (input) on what is no record, or of a version of another number before the dot.
Record read_record_log(const std::filesystem::path& path);
void check_record_version(const std::string& version, const std::filesystem::path& path);

}  // namespace maniple
