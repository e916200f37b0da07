#include <kernels/support/check.hpp>
#include <runtime/checkpoint/extents.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/safetensors.hpp>
#include <runtime/checkpoint/weight_index.hpp>

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace maniple {

using nlohmann::json;

namespace {

constexpr std::string_view index_name = "model.safetensors.index.json", single_name = "model.safetensors";
constexpr uint64_t max_index_bytes = 100'000'000;

// Adds a file to the index, a packed model once, and returns the tensors of the safetensors file `name`.
IndexedTensors open_file(WeightIndex& index, const ModelFiles& files, std::string_view name) {
  if (files.packed()) {
    const InputFile packed(files.where());
    if (index.files.empty()) index.files.push_back({packed.path(), fingerprint_of(packed)});
    return packed_tensors(files, name, packed.size());
  }
  const InputFile file = files.open(name);
  IndexedTensors tensors;
  for (auto& [tensor, stored] : read_safetensors_header(file)) {
    std::vector<Extent> extents =
        whole_extent(stored.info, static_cast<uint32_t>(index.files.size()), stored.offset);
    tensors.emplace_hint(tensors.end(), tensor, IndexedTensor{stored.info, std::move(extents)});
  }
  index.files.push_back({file.path(), fingerprint_of(file)});
  return tensors;
}

// Returns the name of a file in the model's directory: an index must not lead elsewhere.
std::string shard_name(const json& value, const std::string& tensor, const std::string& where) {
  std::string name = value.is_string() ? value.get<std::string>() : "";
  if (name.find('/') != name.npos || name.find('\0') != name.npos || !name.ends_with(".safetensors"))
    fail(ExitCode::input,
         "{}: tensor {} is said to be in {}; supported: a *.safetensors file in the same directory", where,
         shown(tensor), shown(value));
  return name;
}

// Opens only files that the index mentions, no duplicates such as consolidated.safetensors.
WeightIndex read_listed(const ModelFiles& files) {
  const std::string where = files.where(index_name);
  const json parsed = parse_json(files.text(index_name, max_index_bytes), where);
  const json* weight_map = JsonFields(parsed, where).find("weight_map");
  if (!weight_map || !weight_map->is_object() || weight_map->empty())
    fail(ExitCode::input, "{}: weight_map is missing or empty", where);
  std::map<std::string, std::vector<std::string>> tensors_of;  // by file
  for (const auto& [tensor, value] : weight_map->items())
    tensors_of[shard_name(value, tensor, where)].push_back(tensor);
  WeightIndex index;
  for (const auto& [shard, tensors] : tensors_of) {
    if (!files.has(shard))
      fail(ExitCode::input, "{} names {}, which is not there; is the download complete?", where,
           shown(shard));
    const IndexedTensors stored = open_file(index, files, shard);
    for (const std::string& tensor : tensors) {
      const auto found = stored.find(tensor);
      if (found == stored.end())
        fail(ExitCode::input, "{} says that tensor {} is in {}, but it is not", where, shown(tensor),
             shown(shard));
      index.tensors.insert(*found);
    }
  }
  return index;
}

[[noreturn]] void refuse_without_safetensors(const ModelFiles& files) {
  for (const std::string_view ending : {".bin", ".pt", ".pth", ".gguf"})
    if (const auto names = files.names(ending); !names.empty())
      throw Error(
          ExitCode::input, fmt::format("{} has no *.safetensors file, only {}", files.where(), names[0]),
          "maniple reads the safetensors format alone",
          "download the model's safetensors files, or convert them with save_pretrained of transformers");
  fail(ExitCode::input, "{} has no *.safetensors file; is the download complete?", files.where());
}

// Numbers as they lie in memory: all ranks run one program.
template <typename T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <typename Items>
void put_run(std::string& out, const Items& items) {
  put(out, items.size());
  out.append(reinterpret_cast<const char*>(items.data()), items.size() * sizeof *items.data());
}

void take(std::string_view& in, void* to, size_t size) {
  require(size <= in.size(), "an index that arrived whole");
  if (size > 0) std::memcpy(to, in.data(), size);
  in.remove_prefix(size);
}
template <typename T>
T take(std::string_view& in) {
  T value;
  take(in, &value, sizeof value);
  return value;
}
template <typename Items>
Items take_run(std::string_view& in) {
  Items items;
  items.resize(take<size_t>(in));
  take(in, items.data(), items.size() * sizeof *items.data());
  return items;
}

WeightIndex read_all(const ModelFiles& files) {
  std::vector<std::string> names{std::string(single_name)};
  if (!files.has(single_name)) names = files.names(".safetensors");
  if (names.empty()) refuse_without_safetensors(files);
  WeightIndex index;
  for (const std::string& file : names) {
    IndexedTensors tensors = open_file(index, files, file);
    index.tensors.merge(tensors);  // leaves those that another file has too
    if (tensors.empty()) continue;
    const std::string& twice = tensors.begin()->first;
    const auto first = std::ranges::find_if(
        names, [&](const std::string& name) { return open_file(index, files, name).contains(twice); });
    fail(ExitCode::input, "tensor {} is in both {} and {}, and there is no {} to choose", shown(twice),
         files.where(*first), files.where(file), index_name);
  }
  return index;
}

}  // namespace

IndexedTensors packed_tensors(const ModelFiles& files, std::string_view name, uint64_t file_size) {
  const auto packed = files.packed()->safetensors.find(name);
  if (packed == files.packed()->safetensors.end())
    fail(ExitCode::input, "{} holds no tensors of {}", files.where(), name);
  const InputFile file = files.open(name);
  std::string header(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(header)));
  if (XXH64(header.data(), header.size(), 0) != packed->second.header.hash)
    refuse_checksum(files.where(), "header of " + std::string(name));
  IndexedTensors tensors;
  for (auto& [tensor, stored] : read_safetensors_header(file, files.size(name))) {
    const std::string where = fmt::format("{}: tensor {}", files.where(), shown(tensor));
    const auto found = packed->second.tensors.find(tensor);
    if (found == packed->second.tensors.end()) fail(ExitCode::input, "{} is not in the index", where);
    std::vector<Extent> extents = extents_of(stored.info, found->second, 0, file_size, where);
    tensors.emplace_hint(tensors.end(), tensor, IndexedTensor{stored.info, std::move(extents)});
  }
  return tensors;
}

// A packed model holds the tensors of the files that were read when it was made.
WeightIndex read_index(const ModelFiles& files) {
  const bool single =
      files.packed() ? files.packed()->safetensors.contains(single_name) : files.has(single_name);
  WeightIndex index = files.has(index_name) && !single ? read_listed(files) : read_all(files);
  if (files.has(index_name) && single && !files.packed())
    index.warning = fmt::format(
        "{} holds both {} and {}: {} is read, as in transformers; delete the one that is not this model's",
        files.where(), single_name, index_name, single_name);
  if (files.packed()) check_apart(index, *files.packed(), files.where());
  return index;
}

std::string to_bytes(const WeightIndex& index) {
  std::string out;
  put(out, index.files.size());
  for (const auto& [path, print] : index.files) {
    put_run(out, path.native());
    put(out, print);
  }
  put(out, index.tensors.size());
  for (const auto& [name, tensor] : index.tensors) {
    put_run(out, name);
    put_run(out, tensor.info.stored_type);
    put_run(out, tensor.info.shape);
    put(out, tensor.info.byte_size);
    put_run(out, tensor.extents);
    put_run(out, tensor.value);
  }
  return out;
}

WeightIndex index_from(std::string_view in) {
  WeightIndex index;
  for (auto left = take<size_t>(in); left > 0; --left) {
    auto path = take_run<std::string>(in);
    index.files.push_back({std::move(path), take<FileFingerprint>(in)});
  }
  for (auto left = take<size_t>(in); left > 0; --left) {
    auto name = take_run<std::string>(in);
    IndexedTensor& tensor =
        index.tensors.emplace_hint(index.tensors.end(), std::move(name), IndexedTensor{})->second;
    tensor.info.stored_type = take_run<std::string>(in);
    tensor.info.shape = take_run<std::vector<int64_t>>(in);
    tensor.info.byte_size = take<uint64_t>(in);
    tensor.extents = take_run<std::vector<Extent>>(in);
    tensor.value = take_run<std::vector<std::byte>>(in);
    tensor.info.dtype = dtype_of(tensor.info.stored_type);
  }
  return index;
}

}  // namespace maniple
