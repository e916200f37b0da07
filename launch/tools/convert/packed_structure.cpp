#include <launch/hdf5/hdf5_calls.hpp>
#include <launch/tools/convert/packed_structure.hpp>
#include <runtime/checkpoint/extents.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

namespace maniple {

namespace fs = std::filesystem;

namespace {

constexpr const char* schema = "maniple-model";

// Of 16 bits: HDF5 has no such types of its own.
Hdf5Handle float_type(const Hdf5Calls& hdf5, size_t exponent_bits, size_t mantissa_bits) {
  Hdf5Handle type = hdf5.own(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  hdf5.check(H5Tset_fields(type.get(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits));
  hdf5.check(H5Tset_size(type.get(), 2));
  hdf5.check(H5Tset_ebias(type.get(), (size_t{1} << (exponent_bits - 1)) - 1));
  return type;
}

// Absent: HDF5 has no such numbers; stored as bytes in a row. FP8 keeps its shape, which chunks cut: HDF5 has no floats of 8 bits
// without infinities.
std::optional<Hdf5Handle> number_type(const Hdf5Calls& hdf5, const std::string& stored_type) {
  if (stored_type == "BF16") return float_type(hdf5, 8, 7);
  if (stored_type == "F16") return float_type(hdf5, 5, 10);
  const std::pair<const char*, hid_t> types[] = {
      {"F32", H5T_IEEE_F32LE},   {"F64", H5T_IEEE_F64LE}, {"I8", H5T_STD_I8LE},   {"I16", H5T_STD_I16LE},
      {"I32", H5T_STD_I32LE},    {"I64", H5T_STD_I64LE},  {"U8", H5T_STD_U8LE},   {"U16", H5T_STD_U16LE},
      {"U32", H5T_STD_U32LE},    {"U64", H5T_STD_U64LE},  {"BOOL", H5T_STD_U8LE}, {"F8_E4M3", H5T_STD_U8LE},
      {"F8_E5M2", H5T_STD_U8LE},
  };
  for (const auto& [name, type] : types)
    if (stored_type == name) return hdf5.own(H5Tcopy(type), H5Tclose);
  return std::nullopt;
}

Hdf5Handle space_of(const Hdf5Calls& hdf5, std::span<const hsize_t> dimensions) {
  if (dimensions.empty()) return hdf5.own(H5Screate(H5S_SCALAR), H5Sclose);
  return hdf5.own(H5Screate_simple(static_cast<int>(dimensions.size()), dimensions.data(), nullptr),
                  H5Sclose);
}

// Room for all of the data, which is not written. chunk: empty for contiguous data.
Hdf5Handle make_dataset(const Hdf5Calls& hdf5, hid_t file, const std::string& path, hid_t type,
                        std::span<const hsize_t> dimensions, std::span<const hsize_t> chunk = {}) {
  const Hdf5Handle layout = hdf5.own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  hdf5.check(H5Pset_alloc_time(layout.get(), H5D_ALLOC_TIME_EARLY));
  hdf5.check(H5Pset_fill_time(layout.get(), H5D_FILL_TIME_NEVER));
  hdf5.check(H5Pset_obj_track_times(layout.get(), false));  // the same model gives the same bytes
  if (!chunk.empty()) hdf5.check(H5Pset_chunk(layout.get(), static_cast<int>(chunk.size()), chunk.data()));
  const Hdf5Handle links = hdf5.own(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  hdf5.check(H5Pset_create_intermediate_group(links.get(), 1));
  const Hdf5Handle space = space_of(hdf5, dimensions);
  return hdf5.own(H5Dcreate2(file, path.c_str(), type, space.get(), links.get(), layout.get(), H5P_DEFAULT),
                  H5Dclose);
}

uint64_t chunk_address(const Hdf5Calls& hdf5, hid_t dataset, std::span<const hsize_t> begin) {
  unsigned filters = 0;
  haddr_t address = HADDR_UNDEF;
  hsize_t bytes = 0;
  hdf5.check(H5Dget_chunk_info_by_coord(dataset, begin.data(), &filters, &address, &bytes));
  return address;
}

// The library counts a chunk's address from the superblock or, in later versions, from the begin of the file: a chunk that it
// writes tells which.
uint64_t find_base(const Hdf5Calls& hdf5, hid_t file, const fs::path& path, uint64_t user_block) {
  constexpr const char* name = "probe";
  const hsize_t size = packed_magic.size(), begin = 0;
  uint64_t address = 0;
  {
    const Hdf5Handle probe = make_dataset(hdf5, file, name, H5T_STD_U8LE, {&size, 1}, {&size, 1});
    hdf5.check(H5Dwrite(probe.get(), H5T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, packed_magic.data()));
    hdf5.check(H5Fflush(file, H5F_SCOPE_GLOBAL));
    address = chunk_address(hdf5, probe.get(), {&begin, 1});
  }
  hdf5.check(H5Ldelete(file, name, H5P_DEFAULT));
  std::array<char, packed_magic.size()> there{};
  const InputFile written(path);
  for (const uint64_t base : {uint64_t{0}, user_block}) {
    if (address + base + there.size() > written.size()) break;
    written.read(address + base, std::as_writable_bytes(std::span(there)));
    if (there == packed_magic) return base;
  }
  fail(ExitCode::fault, "{}: the HDF5 library does not tell where it writes", path.string());
}

bool is_chunked(const PackedTensor& packed) { return packed.offsets.size() > 1; }

// Tensors of three dimensions and more have chunks of whole elements of the first.
std::vector<hsize_t> shape_of_chunk(const TensorInfo& tensor, const PackedTensor& packed) {
  if (tensor.shape.size() <= 2)
    return {static_cast<hsize_t>(packed.chunk_rows), static_cast<hsize_t>(packed.chunk_columns)};
  std::vector<hsize_t> shape(tensor.shape.begin(), tensor.shape.end());
  shape[0] = static_cast<hsize_t>(packed.chunk_rows) / shape[1];
  return shape;
}

// Calls action(number, place of the first element) for each chunk.
void for_each_chunk(const TensorInfo& tensor, const PackedTensor& packed, auto action) {
  const StoredMatrix matrix = matrix_of(tensor);
  for (size_t i = 0, row = 0, column = 0; i < packed.offsets.size(); ++i) {
    std::vector<hsize_t> place{row, column};
    if (tensor.shape.size() > 2) {
      place.assign(tensor.shape.size(), 0);
      place[0] = row / static_cast<hsize_t>(tensor.shape[1]);
    }
    action(i, place);
    column += static_cast<size_t>(packed.chunk_columns);
    if (column < static_cast<size_t>(matrix.columns)) continue;
    column = 0;
    row += static_cast<size_t>(packed.chunk_rows);
  }
}

void make_tensor(const Hdf5Calls& hdf5, hid_t file, const TensorToPack& tensor, PackedTensor& packed,
                 uint64_t base) {
  const TensorInfo& info = tensor.stored.info;
  const std::optional<Hdf5Handle> number = number_type(hdf5, info.stored_type);
  std::vector<hsize_t> dimensions(info.shape.begin(), info.shape.end());
  if (!number || dimensions.size() > H5S_MAX_RANK) dimensions = {info.byte_size};
  const bool chunked = is_chunked(packed);
  const std::vector<hsize_t> chunk = chunked ? shape_of_chunk(info, packed) : std::vector<hsize_t>();
  const Hdf5Handle dataset = make_dataset(
      hdf5, file, tensor.link,
      number && dimensions.size() == info.shape.size() ? number->get() : H5T_STD_U8LE, dimensions, chunk);
  hdf5.write_attribute(dataset.get(), "name", tensor.name);
  hdf5.write_attribute(dataset.get(), "dtype", info.stored_type);
  if (!number) hdf5.write_attribute(dataset.get(), "shape", fmt::format("[{}]", fmt::join(info.shape, ", ")));
  for_each_chunk(info, packed, [&](size_t i, std::span<const hsize_t> begin) {
    packed.offsets[i] = static_cast<int64_t>(chunked ? chunk_address(hdf5, dataset.get(), begin) + base
                                                     : H5Dget_offset(dataset.get()));
  });
}

uint64_t make_bytes(const Hdf5Calls& hdf5, hid_t file, const std::string& path, uint64_t size) {
  const hsize_t dimension = size;
  const Hdf5Handle dataset = make_dataset(hdf5, file, path, H5T_STD_U8LE, {&dimension, 1});
  return size > 0 ? H5Dget_offset(dataset.get()) : 0;
}

}  // namespace

PackedBytes make_structure(const fs::path& path, Packing& packing, int shards, uint64_t align) {
  const Hdf5Calls hdf5(ExitCode::fault, fmt::format("cannot write {}", path.string()));
  const Hdf5Handle access = hdf5.unlocked();
  const Hdf5Handle creation = hdf5.own(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  hdf5.check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST));
  hdf5.check(H5Pset_alignment(access.get(), align, align));
  const uint64_t user_block = std::max(user_block_bytes, align);  // the library wants no smaller one
  hdf5.check(H5Pset_userblock(creation.get(), user_block));
  const Hdf5Handle file =
      hdf5.own(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose);
  hdf5.write_attribute(file.get(), "schema", schema);
  hdf5.write_attribute(file.get(), "schema_version", fmt::format("{}.{}", packed_major, packed_minor));
  hdf5.write_attribute(file.get(), "architecture", packing.architecture);
  hdf5.write_attribute(file.get(), "shards", std::to_string(shards));
  for (const char* group : {"files", "safetensors", "tensors"})
    hdf5.own(H5Gcreate2(file.get(), group, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  for (auto& [name, bytes] : packing.index.files)
    bytes.offset = make_bytes(hdf5, file.get(), link_of_file(name), bytes.size);
  for (auto& [name, tensors] : packing.index.safetensors)
    tensors.header.offset = make_bytes(hdf5, file.get(), "safetensors/" + name, tensors.header.size);
  PackedBytes index{0, longest_json(packing.index), 0};
  index.offset = make_bytes(hdf5, file.get(), "index", index.size);
  const uint64_t base = find_base(hdf5, file.get(), path, user_block);
  for (const TensorToPack& tensor : packing.tensors)
    make_tensor(hdf5, file.get(), tensor, packing.packed(tensor), base);
  hdf5.check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
  return index;
}

std::vector<std::string> differences_of_structure(const fs::path& path, const PackedIndex& index,
                                                  const std::map<std::string, StoredTensors>& tensors) {
  const Hdf5Calls hdf5(ExitCode::input, fmt::format("{}: the HDF5 library cannot read it", path.string()));
  const Hdf5Handle access = hdf5.unlocked();
  const Hdf5Handle file = hdf5.own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  const std::string version = hdf5.read_attribute(file.get(), "schema_version");
  if (hdf5.read_attribute(file.get(), "schema") != schema ||
      !version.starts_with(fmt::format("{}.", packed_major)))
    fail(ExitCode::input, "{}: the schema is {} {}; this maniple reads {} {}.x", path.string(),
         hdf5.read_attribute(file.get(), "schema"), version, schema, packed_major);
  const Hdf5Handle creation = hdf5.own(H5Fget_create_plist(file.get()), H5Pclose);
  hsize_t user_block = 0;
  hdf5.check(H5Pget_userblock(creation.get(), &user_block));
  std::vector<std::string> lines;
  std::set<uint64_t> bases;  // what the library leaves out of a chunk's address: the same of all
  const auto open = [&](const std::string& link) {
    return hdf5.own(H5Dopen2(file.get(), link.c_str(), H5P_DEFAULT), H5Dclose);
  };
  const auto compare = [&](const std::string& what, uint64_t there, uint64_t indexed) {
    if (there != indexed)
      lines.push_back(
          fmt::format("{}: the index says byte {}, the HDF5 library byte {}", what, indexed, there));
  };
  for (const auto& [name, bytes] : index.files)
    if (bytes.size > 0) compare(name, H5Dget_offset(open(link_of_file(name)).get()), bytes.offset);
  for (const auto& [name, packed_file] : index.safetensors) {
    compare("header of " + name, H5Dget_offset(open("safetensors/" + name).get()), packed_file.header.offset);
    for (const auto& stored : packed_file.tensors) {
      const std::string& tensor = stored.first;
      const PackedTensor& packed = stored.second;
      const std::string listed = link_of(name, tensor, true), unlisted = link_of(name, tensor, false);
      const bool in_unlisted =
          H5Lexists(file.get(), "unlisted", H5P_DEFAULT) > 0 &&
          H5Lexists(file.get(), unlisted.substr(0, unlisted.rfind('/')).c_str(), H5P_DEFAULT) > 0 &&
          H5Lexists(file.get(), unlisted.c_str(), H5P_DEFAULT) > 0;
      const Hdf5Handle dataset = open(in_unlisted ? unlisted : listed);
      const TensorInfo& info = tensors.at(name).at(tensor).info;
      for_each_chunk(info, packed, [&](size_t i, std::span<const hsize_t> begin) {
        const auto indexed = static_cast<uint64_t>(packed.offsets[i]);
        const bool chunked = is_chunked(packed);
        uint64_t there = chunked ? chunk_address(hdf5, dataset.get(), begin) : H5Dget_offset(dataset.get());
        if (chunked && (indexed - there == 0 || indexed - there == user_block)) {
          bases.insert(indexed - there);
          there = indexed;
        }
        compare(fmt::format("tensor {}, chunk {}", tensor, i), there, indexed);
      });
    }
  }
  if (bases.size() > 1) lines.emplace_back("the HDF5 library counts the addresses of chunks in two ways");
  return lines;
}

}  // namespace maniple
