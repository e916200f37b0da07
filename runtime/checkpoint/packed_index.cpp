#include <kernels/support/counted.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/packed_index.hpp>

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

namespace maniple {

using nlohmann::json;

namespace {

static_assert(std::endian::native == std::endian::little, "the user block is little-endian");

constexpr size_t hash_digits = 16;
constexpr std::string_view hdf5_signature("\x89HDF\r\n\x1a\n", 8);

struct UserBlock {
  std::array<char, 8> magic = packed_magic;
  uint32_t major = packed_major, minor = packed_minor;
  uint64_t file_size = 0;
  uint64_t offset = 0, size = 0, hash = 0;  // of the JSON text
  uint64_t own_hash = 0;                    // of all before it

  uint64_t computed_hash() const { return XXH64(this, offsetof(UserBlock, own_hash), 0); }
};
static_assert(sizeof(UserBlock) == 56);

[[noreturn]] void refuse_file(const InputFile& file, const std::string& found) {
  throw Error(ExitCode::input, fmt::format("{} is no model file: {}", file.path().string(), found),
              "maniple reads directories with config.json and safetensors files, and the files that maniple "
              "convert makes of "
              "them; it downloads nothing by name",
              "give the model's directory, or maniple convert DIR " + file.path().string());
}

[[noreturn]] void refuse_rewritten(const std::string& packed) {
  throw Error(ExitCode::input,
              fmt::format("{} was rewritten by another program: its index does not hold", packed),
              "maniple finds the weights by an index of its own, which other programs do not know (or the "
              "file is damaged)",
              "run maniple convert again");
}

// What a file is that has no user block of ours.
std::string kind_of(const InputFile& file) {
  if (file.size() == 0) return "it is empty";
  std::string begin(std::min<uint64_t>(file.size(), 512), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  if (begin.starts_with(hdf5_signature))
    return "it is an HDF5 file without maniple's index, such as a run's record";
  const auto printable = [](unsigned char c) { return c >= ' ' || c == '\n' || c == '\r' || c == '\t'; };
  if (std::ranges::all_of(begin, printable)) return "it is text";
  return "it does not begin with the mark of maniple convert";
}

// Whether the file has the size that its HDF5 superblock gives. A program that rewrites the file keeps our user block and sets
// that; a file that was cut off has less.
bool ends_as_hdf5_says(const InputFile& file) {
  constexpr uint64_t place_of_end = 40, most_user_block = uint64_t{64} << 20;
  std::array<uint64_t, 6> superblock{};
  for (uint64_t at = user_block_bytes; at <= most_user_block && at + sizeof superblock <= file.size();
       at *= 2) {
    file.read(at, std::as_writable_bytes(std::span(superblock)));
    if (std::memcmp(superblock.data(), hdf5_signature.data(), hdf5_signature.size()) == 0)
      return superblock[place_of_end / sizeof(uint64_t)] == file.size();
  }
  return false;
}

UserBlock read_user_block(const InputFile& file) {
  UserBlock block;
  if (file.size() < user_block_bytes) {
    std::array<char, packed_magic.size()> begin{};
    if (file.size() >= begin.size()) file.read(0, std::as_writable_bytes(std::span(begin)));
    refuse_file(file, begin == packed_magic
                          ? fmt::format("it is truncated, to {}", counted(file.size(), "byte"))
                          : kind_of(file));
  }
  file.read(0, std::as_writable_bytes(std::span(&block, 1)));
  if (block.magic != packed_magic) refuse_file(file, kind_of(file));
  if (block.own_hash != block.computed_hash()) refuse_file(file, "the checksum of its first block differs");
  if (block.major != packed_major)
    fail(ExitCode::input, "{} has version {}.{} of the schema maniple-model; this maniple reads {}.x",
         file.path().string(), block.major, block.minor, packed_major);
  if (file.size() != block.file_size && (file.size() > block.file_size || ends_as_hdf5_says(file)))
    refuse_rewritten(file.path().string());
  if (file.size() < block.file_size)
    refuse_file(file, fmt::format("it is truncated: {}, and maniple convert wrote {}",
                                  counted(file.size(), "byte"), block.file_size));
  if (block.size > std::min(max_index_bytes, file.size()) || block.offset > file.size() - block.size)
    refuse_file(file, fmt::format("its index is said to have {} bytes at byte {}", block.size, block.offset));
  return block;
}

const std::string& short_name(const std::string& name, std::string_view where) {
  if (name.size() > max_name_bytes)
    fail(ExitCode::input, "{}: the name {} has {} bytes; at most {} are possible", where, shown(name),
         name.size(), max_name_bytes);
  return name;
}

// A name in the model's directory, and nowhere else.
const std::string& checked_name(const std::string& name, std::string_view where) {
  std::string_view file = name;
  if (file.starts_with(templates_folder)) file.remove_prefix(templates_folder.size());
  if (file.empty() || file == "." || file == ".." || file.find('/') != file.npos ||
      file.find('\0') != file.npos)
    fail(ExitCode::input, "{}: {} is no file name", where, shown(name));
  return short_name(name, where);
}

// Before anything is stored. A value begins an object or a list, or follows a comma there.
void check_limits(std::string_view text, std::string_view where) {
  const auto begins = [](char c) { return c == ',' || c == '[' || c == '{'; };
  const auto values = static_cast<uint64_t>(std::ranges::count_if(text, begins));
  if (text.size() > max_index_bytes || values > max_index_values)
    fail(ExitCode::input, "{}: it has {} and about {}; at most {} and {} are possible", where,
         counted(text.size(), "byte"), counted(values, "value"), max_index_bytes, max_index_values);
}

uint64_t hash_from(const JsonFields& fields, std::string_view name, std::string_view digits) {
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  if (digits.size() != hash_digits || error != std::errc{} || end != digits.data() + digits.size())
    fields.refuse(name, "16 hexadecimal digits a checksum");
  return hash;
}

PackedBytes bytes_from(const JsonFields& fields, uint64_t file_size) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  PackedBytes bytes;
  bytes.offset = static_cast<uint64_t>(fields.integer("offset", 0, most));
  bytes.size = static_cast<uint64_t>(fields.integer("bytes", 0, most));
  bytes.hash = hash_from(fields, "hash", fields.text("hash"));
  if (bytes.size > file_size || bytes.offset > file_size - bytes.size)
    fields.refuse("bytes", fmt::format("a range of the file's {}", counted(file_size, "byte")));
  return bytes;
}

// A version that knows XXH64 alone refuses the other name, and compares nothing that it cannot compute.
const char* hashes_name(HashKind kind) { return kind == HashKind::xxh64 ? "hashes" : "xxh3"; }

PackedTensor tensor_from(const JsonFields& fields) {
  PackedTensor tensor;
  const std::vector<int64_t> chunk = fields.sizes("chunk");
  if (chunk.size() != 2) fields.refuse("chunk", "its rows and columns");
  tensor.chunk_rows = chunk[0];
  tensor.chunk_columns = chunk[1];
  tensor.offsets = fields.sizes("offsets");
  if (fields.find(hashes_name(HashKind::xxh64))) tensor.hashed_by = HashKind::xxh64;
  const std::string_view name = hashes_name(tensor.hashed_by);
  const std::string hashes = fields.text(name);
  if (hashes.size() != tensor.offsets.size() * hash_digits) fields.refuse(name, "one for each offset");
  for (size_t i = 0; i < hashes.size(); i += hash_digits)
    tensor.hashes.push_back(hash_from(fields, name, std::string_view(hashes).substr(i, hash_digits)));
  return tensor;
}

json bytes_to(const PackedBytes& bytes) {
  return {{"offset", bytes.offset}, {"bytes", bytes.size}, {"hash", fmt::format("{:016x}", bytes.hash)}};
}

json tensor_to(const PackedTensor& tensor) {
  std::string hashes;
  for (const uint64_t hash : tensor.hashes) hashes += fmt::format("{:016x}", hash);
  return {{"chunk", {tensor.chunk_rows, tensor.chunk_columns}},
          {"offsets", tensor.offsets},
          {hashes_name(tensor.hashed_by), hashes}};
}

}  // namespace

void refuse_checksum(const std::string& packed, const std::string& part) {
  throw Error(
      ExitCode::input, fmt::format("{}: {}: the checksum differs", packed, part),
      "its bytes are not those that were written: the text of a model with other weights would be wrong",
      fmt::format("run maniple convert again, or maniple convert --check {} to see all", packed));
}

PackedIndex packed_index_from(std::string_view text, std::string_view where, uint64_t file_size) {
  check_limits(text, where);
  const json parsed = parse_json(text, where);
  const JsonFields fields(parsed, where);
  PackedIndex index;
  const json none = json::object();
  const auto member = [&](const char* name) { return fields.find(name) ? fields.find(name) : &none; };
  for (const auto& [name, value] : JsonFields(*member("files"), where, "files").items())
    index.files[checked_name(name, where)] =
        bytes_from(JsonFields(value, where, "files." + shown(name)), file_size);
  for (const auto& [name, value] : JsonFields(*member("safetensors"), where, "safetensors").items()) {
    const JsonFields file(value, where, "safetensors." + shown(name));
    if (index.files.contains(name)) fail(ExitCode::input, "{}: {} is there twice", where, shown(name));
    PackedTensors& tensors = index.safetensors[checked_name(name, where)];
    tensors.size = static_cast<uint64_t>(file.integer("size", 0, std::numeric_limits<int64_t>::max()));
    tensors.header = bytes_from(file.object("header"), file_size);
    for (const auto& [tensor, stored] : file.object("tensors").items())
      tensors.tensors[short_name(tensor, where)] =
          tensor_from(JsonFields(stored, where, "tensor " + shown(tensor)));
  }
  return index;
}

PackedIndex read_packed_index(const InputFile& file) {
  const UserBlock block = read_user_block(file);
  std::string text(block.size, '\0');
  file.read(block.offset, std::as_writable_bytes(std::span(text)));
  if (XXH64(text.data(), text.size(), 0) != block.hash) refuse_rewritten(file.path().string());
  return packed_index_from(text, file.path().string() + ": index", file.size());
}

std::string to_json(const PackedIndex& index) {
  json files = json::object(), safetensors = json::object();
  for (const auto& [name, bytes] : index.files) files[name] = bytes_to(bytes);
  for (const auto& [name, file] : index.safetensors) {
    json tensors = json::object();
    for (const auto& [tensor, stored] : file.tensors) tensors[tensor] = tensor_to(stored);
    safetensors[name] = {
        {"size", file.size}, {"header", bytes_to(file.header)}, {"tensors", std::move(tensors)}};
  }
  return json{{"files", std::move(files)}, {"safetensors", std::move(safetensors)}}.dump();
}

uint64_t longest_json(const PackedIndex& index) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  PackedIndex longest = index;
  for (auto& [name, bytes] : longest.files) bytes.offset = most;
  for (auto& [name, file] : longest.safetensors) {
    file.header.offset = most;
    for (auto& [tensor, stored] : file.tensors) std::ranges::fill(stored.offsets, most);
  }
  return to_json(longest).size();
}

std::string user_block_of(uint64_t file_size, const PackedBytes& text) {
  UserBlock block;
  block.file_size = file_size;
  block.offset = text.offset;
  block.size = text.size;
  block.hash = text.hash;
  block.own_hash = block.computed_hash();
  std::string bytes(user_block_bytes, '\0');
  std::memcpy(bytes.data(), &block, sizeof block);
  return bytes;
}

}  // namespace maniple
