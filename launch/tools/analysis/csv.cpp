#include <launch/run_directory/durable_file.hpp>
#include <launch/tools/analysis/csv.hpp>

#include <fmt/format.h>
#include <boost/algorithm/string/replace.hpp>

#include <cmath>
#include <vector>

namespace maniple {
namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return fmt::format("\"{}\"", boost::algorithm::replace_all_copy(text, "\"", "\"\""));
}

// Counts are exact up to 2^53.
std::string number_of(FieldType type, double number) {
  if (std::isnan(number)) return {};
  return type == FieldType::f64 ? fmt::format("{}", number) : fmt::format("{:.0f}", number);
}

void write_rows(const StoredTable& stored, DurableFile& file) {
  const std::vector<RecordField>& fields = stored.table.fields;
  std::vector<std::vector<double>> columns;
  std::string line;
  for (const RecordField& field : fields) {
    if (!columns.empty()) line += ',';
    line += quoted(field.name);
    columns.push_back(stored.column(field.name));
  }
  file.append(line + '\n');
  const auto cell = [&](size_t i, size_t row) {
    return fields[i].type == FieldType::text ? quoted(stored.text_at(fields[i].name, row))
                                             : number_of(fields[i].type, columns[i][row]);
  };
  for (size_t row = 0; row < stored.size(); ++row) {
    line.clear();
    for (size_t i = 0; i < fields.size(); ++i) line += i == 0 ? cell(i, row) : ',' + cell(i, row);
    file.append(line + '\n');
  }
}

// A record may come from anywhere.
bool is_file_name(const std::string& name) { return !name.empty() && name.find('/') == std::string::npos; }

}  // namespace

void write_csv(const Record& record, const std::filesystem::path& folder) {
  for (const StoredTable& stored : record.tables)
    if (stored.size() > 0 && is_file_name(stored.table.name))
      replace_file(folder / (stored.table.name + ".csv"),
                   [&](DurableFile& file) { write_rows(stored, file); });
}

}  // namespace maniple
