#include <kernels/support/check.hpp>
#include <runtime/checkpoint/checkpoint_reader.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/safetensors.hpp>

#include <algorithm>

namespace maniple {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view index_name = "model.safetensors.index.json";
constexpr uint64_t max_index_bytes = 100'000'000;

class ShardedCheckpoint final : public CheckpointReader {
 public:
  const SafetensorsFile& add_file(const fs::path& path) {
    return *files_.emplace_back(std::make_unique<SafetensorsFile>(path));
  }

  void add_tensor(const std::string& name, const SafetensorsFile& file) {
    const auto [entry, added] = file_of_.emplace(name, &file);
    if (!added)
      fail(ExitCode::input, "tensor {} is in both {} and {}, and there is no {} to choose", shown(name),
           entry->second->path().string(), file.path().string(), index_name);
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, file] : file_of_) names.push_back(name);
    return names;
  }

  const TensorInfo* find(std::string_view name) const override {
    const auto found = file_of_.find(name);
    return found == file_of_.end() ? nullptr : found->second->find(name);
  }

  void read(std::string_view name, std::span<const int64_t> begin, std::span<const int64_t> extent,
            std::span<std::byte> out) const override {
    const auto found = file_of_.find(name);
    if (found == file_of_.end()) fail(ExitCode::input, "the checkpoint has no tensor {}", shown(name));
    found->second->read(name, begin, extent, out);
  }

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*, std::less<>> file_of_;
};

// A file that may be there but cannot be reached counts: opening it says why.
bool maybe_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::status(path, ignored).type() != fs::file_type::not_found;
}

// The name of a file directly in the directory: an index must not lead elsewhere.
std::string shard_name(const nlohmann::json& value, const std::string& tensor, const fs::path& index) {
  std::string name = value.is_string() ? value.get<std::string>() : "";
  if (name.find('/') != name.npos || name.find('\0') != name.npos || !name.ends_with(".safetensors"))
    fail(ExitCode::input,
         "{}: tensor {} is said to be in {}; supported: a *.safetensors file in the same directory",
         index.string(), shown(tensor), shown(value));
  return name;
}

// What the index does not mention (duplicates such as consolidated.safetensors) is not opened.
std::unique_ptr<CheckpointReader> open_indexed(const fs::path& directory) {
  const fs::path index = directory / index_name;
  const nlohmann::json parsed = parse_json(read_text(index, max_index_bytes), index.string());
  const nlohmann::json* weight_map = JsonFields(parsed, index.string()).find("weight_map");
  if (!weight_map || !weight_map->is_object() || weight_map->empty())
    fail(ExitCode::input, "{}: weight_map is missing or empty", index.string());
  auto checkpoint = std::make_unique<ShardedCheckpoint>();
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [tensor, value] : weight_map->items()) {
    const std::string shard = shard_name(value, tensor, index);
    const SafetensorsFile*& file = opened[shard];
    if (!file) {
      if (!maybe_exists(directory / shard))
        fail(ExitCode::input, "{} names {}, which is not there; is the download complete?", index.string(),
             shown(shard));
      file = &checkpoint->add_file(directory / shard);
    }
    if (!file->find(tensor))
      fail(ExitCode::input, "{} says that tensor {} is in {}, but it is not", index.string(), shown(tensor),
           shown(shard));
    checkpoint->add_tensor(tensor, *file);
  }
  return checkpoint;
}

std::vector<fs::path> files_ending_in(const fs::path& directory, std::string_view ending) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().ends_with(ending)) files.push_back(entry->path());
  if (error) fail(ExitCode::input, "cannot list {}: {}", directory.string(), error.message());
  std::ranges::sort(files);
  return files;
}

[[noreturn]] void refuse_without_safetensors(const fs::path& directory) {
  for (const std::string_view ending : {".bin", ".pt", ".pth", ".gguf"})
    if (const auto files = files_ending_in(directory, ending); !files.empty())
      throw Error(
          ExitCode::input,
          fmt::format("{} has no *.safetensors file, only {}", directory.string(),
                      files[0].filename().string()),
          "maniple reads the safetensors format alone",
          "download the model's safetensors files, or convert them with save_pretrained of transformers");
  fail(ExitCode::input, "{} has no *.safetensors file; is the download complete?", directory.string());
}

std::unique_ptr<CheckpointReader> open_all(const fs::path& directory) {
  const std::vector<fs::path> paths = files_ending_in(directory, ".safetensors");
  if (paths.empty()) refuse_without_safetensors(directory);
  auto checkpoint = std::make_unique<ShardedCheckpoint>();
  for (const fs::path& path : paths) {
    const SafetensorsFile& file = checkpoint->add_file(path);
    for (const std::string& name : file.names()) checkpoint->add_tensor(name, file);
  }
  return checkpoint;
}

}  // namespace

std::unique_ptr<CheckpointReader> open_checkpoint(const fs::path& directory) {
  check_model_directory(directory);
  if (maybe_exists(directory / index_name)) return open_indexed(directory);
  const fs::path single = directory / "model.safetensors";
  if (maybe_exists(single)) return std::make_unique<SafetensorsFile>(single);
  return open_all(directory);
}

}  // namespace maniple
