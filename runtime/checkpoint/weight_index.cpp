#include <kernels/support/check.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/safetensors.hpp>
#include <runtime/checkpoint/weight_index.hpp>

namespace maniple {

using nlohmann::json;

namespace {

constexpr std::string_view index_name = "model.safetensors.index.json";
constexpr uint64_t max_index_bytes = 100'000'000;

// Adds a file to the index and returns its tensors.
StoredTensors open_file(WeightIndex& index, const ModelFiles& files, std::string_view name) {
  const InputFile file = files.open(name);
  StoredTensors tensors = read_safetensors_header(file);
  for (auto& [tensor, stored] : tensors) stored.file = static_cast<uint32_t>(index.files.size());
  index.files.push_back({file.path(), fingerprint_of(file)});
  return tensors;
}

void add_tensor(WeightIndex& index, const StoredTensors::value_type& tensor) {
  const auto [entry, added] = index.tensors.insert(tensor);
  if (!added)
    fail(ExitCode::input, "tensor {} is in both {} and {}, and there is no {} to choose", shown(tensor.first),
         index.files[entry->second.file].path.string(), index.files.back().path.string(), index_name);
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
    const StoredTensors stored = open_file(index, files, shard);
    for (const std::string& tensor : tensors) {
      const auto found = stored.find(tensor);
      if (found == stored.end())
        fail(ExitCode::input, "{} says that tensor {} is in {}, but it is not", where, shown(tensor),
             shown(shard));
      add_tensor(index, *found);
    }
  }
  return index;
}

std::vector<std::string> names_ending_in(const ModelFiles& files, std::string_view ending) {
  std::vector<std::string> names = files.names();
  std::erase_if(names, [&](const std::string& name) { return !name.ends_with(ending); });
  return names;
}

[[noreturn]] void refuse_without_safetensors(const ModelFiles& files) {
  for (const std::string_view ending : {".bin", ".pt", ".pth", ".gguf"})
    if (const auto names = names_ending_in(files, ending); !names.empty())
      throw Error(
          ExitCode::input, fmt::format("{} has no *.safetensors file, only {}", files.where(), names[0]),
          "maniple reads the safetensors format alone",
          "download the model's safetensors files, or convert them with save_pretrained of transformers");
  fail(ExitCode::input, "{} has no *.safetensors file; is the download complete?", files.where());
}

}  // namespace

WeightIndex read_index(const ModelFiles& files) {
  if (files.has(index_name)) return read_listed(files);
  std::vector<std::string> names{"model.safetensors"};
  if (!files.has(names[0])) names = names_ending_in(files, ".safetensors");
  if (names.empty()) refuse_without_safetensors(files);
  WeightIndex index;
  for (const std::string& file : names)
    for (const auto& tensor : open_file(index, files, file)) add_tensor(index, tensor);
  return index;
}

std::string to_bytes(const WeightIndex& index) {
  json files = json::array(), tensors = json::array();
  for (const auto& [path, print] : index.files)
    files.push_back({json::binary({path.native().begin(), path.native().end()}), print.size, print.header,
                     print.samples});
  for (const auto& [name, tensor] : index.tensors)
    tensors.push_back({name, tensor.info.stored_type, tensor.info.shape, tensor.info.byte_size, tensor.file,
                       tensor.offset});
  std::string bytes;
  json::to_cbor(json{files, tensors}, bytes);
  return bytes;
}

WeightIndex index_from(std::string_view bytes) {
  const json parsed = json::from_cbor(bytes);
  WeightIndex index;
  for (const json& file : parsed[0])
    index.files.push_back(
        {std::string(file[0].get_binary().begin(), file[0].get_binary().end()), {file[1], file[2], file[3]}});
  for (const json& fields : parsed[1]) {
    IndexedTensor tensor;
    fields[1].get_to(tensor.info.stored_type);
    fields[2].get_to(tensor.info.shape);
    fields[3].get_to(tensor.info.byte_size);
    fields[4].get_to(tensor.file);
    fields[5].get_to(tensor.offset);
    tensor.info.dtype = dtype_of(tensor.info.stored_type);
    index.tensors.emplace_hint(index.tensors.end(), fields[0].get<std::string>(), std::move(tensor));
  }
  return index;
}

}  // namespace maniple
