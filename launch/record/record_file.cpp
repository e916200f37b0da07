#include <launch/hdf5/hdf5_calls.hpp>
#include <launch/hdf5/hdf5_process.hpp>
#include <launch/record/record_file.hpp>
#include <launch/run_directory/durable_file.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace maniple {

namespace fs = std::filesystem;

namespace {

constexpr hsize_t rows_per_chunk = 4096;
constexpr std::string_view hdf5_signature("\x89HDF\r\n\x1a\n", 8);

Hdf5Handle type_of(const Hdf5Calls& hdf5, const RecordField& field) {
  switch (field.type) {
    case FieldType::u32:
      return hdf5.own(H5Tcopy(H5T_STD_U32LE), H5Tclose);
    case FieldType::u64:
      return hdf5.own(H5Tcopy(H5T_STD_U64LE), H5Tclose);
    case FieldType::i32:
      return hdf5.own(H5Tcopy(H5T_STD_I32LE), H5Tclose);
    case FieldType::f64:
      return hdf5.own(H5Tcopy(H5T_IEEE_F64LE), H5Tclose);
    case FieldType::text:
      break;
  }
  return hdf5.text_type(field.bytes);
}

Hdf5Handle row_type(const Hdf5Calls& hdf5, const RecordTable& table) {
  Hdf5Handle row = hdf5.own(H5Tcreate(H5T_COMPOUND, table.row_bytes), H5Tclose);
  for (const RecordField& field : table.fields)
    hdf5.check(H5Tinsert(row.get(), field.name.c_str(), field.offset, type_of(hdf5, field).get()));
  return row;
}

// One entry a field, padded to the longest.
void write_units(const Hdf5Calls& hdf5, hid_t dataset, const RecordTable& table) {
  size_t longest = 1;
  for (const RecordField& field : table.fields) longest = std::max(longest, field.unit.size());
  std::string units;
  for (const RecordField& field : table.fields)
    units += field.unit + std::string(longest - field.unit.size(), '\0');
  const hsize_t count = table.fields.size();
  const Hdf5Handle type = hdf5.text_type(longest);
  const Hdf5Handle space = hdf5.own(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Hdf5Handle attribute =
      hdf5.own(H5Acreate2(dataset, "units", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  hdf5.check(H5Awrite(attribute.get(), type.get(), units.data()));
}

void write_table(const Hdf5Calls& hdf5, hid_t file, const StoredTable& stored) {
  const hsize_t rows = stored.size(), chunk = rows_per_chunk, unlimited = H5S_UNLIMITED;
  const Hdf5Handle type = row_type(hdf5, stored.table);
  const Hdf5Handle space = hdf5.own(H5Screate_simple(1, &rows, &unlimited), H5Sclose);
  const Hdf5Handle layout = hdf5.own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  hdf5.check(H5Pset_chunk(layout.get(), 1, &chunk));
  hdf5.check(H5Pset_shuffle(layout.get()));
  hdf5.check(H5Pset_deflate(layout.get(), 1));
  const Hdf5Handle dataset = hdf5.own(H5Dcreate2(file, stored.table.name.c_str(), type.get(), space.get(),
                                                 H5P_DEFAULT, layout.get(), H5P_DEFAULT),
                                      H5Dclose);
  write_units(hdf5, dataset.get(), stored.table);
  if (rows > 0)
    hdf5.check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, stored.rows.data()));
}

// The bytes of the file. The library makes them in memory: where a disk is full it fails, and then crashes at exit.
std::string hdf5_image(const Record& record, const fs::path& path) {
  constexpr size_t growth = size_t{1} << 20;
  const Hdf5Calls hdf5(ExitCode::fault, fmt::format("cannot write {}", path.string()));
  const Hdf5Handle access = hdf5.own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  hdf5.check(H5Pset_fapl_core(access.get(), growth, /*backing_store=*/false));
  // The oldest format: every reader opens it.
  hdf5.check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST));
  const Hdf5Handle file =
      hdf5.own(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
  hdf5.write_attribute(file.get(), "schema", std::string(record_schema));
  hdf5.write_attribute(file.get(), "schema_version", record.version);
  hdf5.write_attribute(file.get(), "complete", record.complete ? "1" : "0");
  const Hdf5Handle provenance =
      hdf5.own(H5Gcreate2(file.get(), "provenance", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  for (const auto& [name, text] : record.texts) hdf5.write_text(provenance.get(), name, text);
  for (const StoredTable& stored : record.tables) write_table(hdf5, file.get(), stored);
  hdf5.check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
  const ssize_t size = H5Fget_file_image(file.get(), nullptr, 0);
  std::string image(static_cast<size_t>(std::max<ssize_t>(size, 0)), '\0');
  hdf5.check(H5Fget_file_image(file.get(), image.data(), image.size()) == size ? 0 : -1);
  return image;
}

FieldType field_type(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_STRING:
      return FieldType::text;
    case H5T_FLOAT:
      return FieldType::f64;
    default:
      if (H5Tget_size(type) == 8) return FieldType::u64;
      return H5Tget_sign(type) == H5T_SGN_2 ? FieldType::i32 : FieldType::u32;
  }
}

RecordField field_of(const Hdf5Calls& hdf5, hid_t row, unsigned index) {
  char* const name = H5Tget_member_name(row, index);
  RecordField field;
  field.name = name ? name : "";
  H5free_memory(name);
  const Hdf5Handle type = hdf5.own(H5Tget_member_type(row, index), H5Tclose);
  field.type = field_type(type.get());
  field.offset = static_cast<uint32_t>(H5Tget_member_offset(row, index));
  field.bytes = H5Tis_variable_str(type.get()) > 0 ? 0 : static_cast<uint32_t>(H5Tget_size(type.get()));
  return field;
}

StoredTable read_table(const Hdf5Calls& hdf5, hid_t file, const std::string& name, std::string_view where) {
  const Hdf5Handle dataset = hdf5.own(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
  const Hdf5Handle type = hdf5.own(H5Dget_type(dataset.get()), H5Tclose);
  const Hdf5Handle space = hdf5.own(H5Dget_space(dataset.get()), H5Sclose);
  StoredTable stored;
  stored.table = {name, static_cast<uint32_t>(H5Tget_size(type.get())), {}};
  for (int index = 0; index < H5Tget_nmembers(type.get()); ++index)
    check_field(stored.table.fields.emplace_back(field_of(hdf5, type.get(), static_cast<unsigned>(index))),
                stored.table, where);
  const hssize_t rows = std::max<hssize_t>(H5Sget_simple_extent_npoints(space.get()), 0);
  stored.rows.resize(static_cast<size_t>(rows) * stored.table.row_bytes);
  if (!stored.rows.empty())
    hdf5.check(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, stored.rows.data()));
  return stored;
}

Record read_hdf5(const fs::path& path) {
  const Hdf5Calls hdf5(ExitCode::input, fmt::format("cannot read {}", path.string()));
  const Hdf5Handle access = hdf5.unlocked();
  const Hdf5Handle file = hdf5.own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (hdf5.read_attribute(file.get(), "schema") != record_schema)
    fail(ExitCode::input, "{} is an HDF5 file, and no record of a run", path.string());
  Record record;
  record.version = hdf5.read_attribute(file.get(), "schema_version");
  check_record_version(record.version, path);
  record.complete = hdf5.read_attribute(file.get(), "complete") == "1";
  for (const std::string& name : hdf5.names_in(file.get()))
    if (name != "provenance") record.tables.push_back(read_table(hdf5, file.get(), name, path.string()));
  const Hdf5Handle provenance = hdf5.own(H5Gopen2(file.get(), "provenance", H5P_DEFAULT), H5Gclose);
  for (const std::string& name : hdf5.names_in(provenance.get()))
    record.texts[name] = hdf5.read_text(provenance.get(), name);
  return record;
}

bool is_hdf5(const fs::path& path) {
  std::array<char, hdf5_signature.size()> head{};
  std::ifstream(path, std::ios::binary).read(head.data(), head.size());
  return std::string_view(head.data(), head.size()) == hdf5_signature;
}

}  // namespace

void write_record_file(const Record& record, const fs::path& path) {
  replace_file(path, hdf5_image(record, path));
}

Record read_record(const fs::path& path) {
  if (fs::is_directory(path)) {
    const fs::path packed = path / record_file_name;
    return read_record(fs::exists(packed) ? packed : path / record_log_name);
  }
  if (!fs::exists(path)) fail(ExitCode::input, "there is no record {}", path.string());
  if (!is_hdf5(path)) return read_record_log(path);
  // A child tries it: what it has read without a crash, this process reads in the same way.
  in_hdf5_process(path, [&] { return read_hdf5(path), std::vector<std::string>(); });
  return read_hdf5(path);
}

}  // namespace maniple
