#include <kernels/support/check.hpp>
#include <runtime/checkpoint/model_files.hpp>

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <set>

namespace maniple {

namespace fs = std::filesystem;

namespace {

// begin: of a file. Templates begin with a token such as <|im_start|>. The length before a safetensors header may begin with a '<' too,
// but the upper half of its 8 bytes is zero.
bool is_web_page(std::string_view begin, bool is_template) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  if (begin.starts_with(mark)) begin.remove_prefix(mark.size());
  begin.remove_prefix(std::min(begin.find_first_not_of(" \t\r\n\f\v"), begin.size()));
  if (!begin.starts_with('<') || begin.find('\0') != begin.npos) return false;
  const auto is = [begin](std::string_view tag) {
    return begin.size() >= tag.size() && std::ranges::equal(begin.substr(0, tag.size()), tag, {}, [](char c) {
             return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
           });
  };
  return !is_template || is("<!doctype") || is("<html") || is("<?xml");
}

// A model's folder in the cache of huggingface_hub (models--ORGANISATION--MODEL) stands for its one snapshot.
fs::path in_hub_cache(fs::path path) {
  std::error_code error;
  std::vector<std::string> snapshots;
  if (fs::exists(path / "config.json", error)) return path;
  for (fs::directory_iterator entry(path / "snapshots", error), end; !error && entry != end;
       entry.increment(error))
    snapshots.push_back(entry->path().string());
  if (snapshots.empty()) return path;
  if (snapshots.size() == 1) return snapshots[0];
  std::ranges::sort(snapshots);
  throw Error(
      ExitCode::input, fmt::format("{} holds {} snapshots of a model", path.string(), snapshots.size()),
      "each is another version of it", fmt::format("give one of them: {}", fmt::join(snapshots, " or ")));
}

}  // namespace

ModelFiles::ModelFiles(fs::path path) : path_(in_hub_cache(std::move(path))) {
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) return;
  if (fs::exists(path_, ignored)) {
    packed_ = std::make_shared<PackedIndex>(read_packed_index(InputFile(path_)));
    return;
  }
  throw Error(
      ExitCode::input, fmt::format("{} does not exist{}", where(), target_text(path_)),
      "maniple reads local directories with config.json and safetensors files; it downloads nothing by name",
      "give the model's directory; download one with: hf download ORGANISATION/MODEL --local-dir DIRECTORY");
}

std::string ModelFiles::name() const {
  return (fs::absolute(path_) / "").lexically_normal().parent_path().filename().string();
}

std::vector<std::string> ModelFiles::names() const {
  std::set<std::string> names;
  std::error_code error;
  if (packed_) {
    for (const auto& [name, bytes] : packed_->files) names.insert(name);
    for (const auto& [name, tensors] : packed_->safetensors) names.insert(name);
    return {names.begin(), names.end()};
  }
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
    names.insert(entry->path().filename().string());
  if (error) fail(ExitCode::input, "cannot list {}: {}", where(), error.message());
  const std::string folder(templates_folder.substr(0, templates_folder.size() - 1));
  if (!fs::is_directory(path_ / folder, error)) return {names.begin(), names.end()};
  names.erase(folder);
  for (fs::directory_iterator entry(path_ / folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".jinja")
      names.insert(std::string(templates_folder) + entry->path().filename().string());
  if (error) fail(ExitCode::input, "cannot list {}: {}", where(folder), error.message());
  return {names.begin(), names.end()};
}

std::vector<std::string> ModelFiles::names(std::string_view ending) const {
  std::vector<std::string> all = names();
  std::erase_if(all, [&](const std::string& name) { return !name.ends_with(ending); });
  return all;
}

bool ModelFiles::has(std::string_view name) const {
  if (packed_) return packed_->files.contains(name) || packed_->safetensors.contains(name);
  std::error_code ignored;
  return fs::symlink_status(path(name), ignored).type() != fs::file_type::not_found;
}

std::vector<fs::path> ModelFiles::weight_files() const {
  if (packed_) return {path_};
  std::vector<fs::path> files;
  for (const std::string& name : names(".safetensors")) files.push_back(path(name));
  return files;
}

const PackedBytes& ModelFiles::place(std::string_view name) const {
  if (const auto file = packed_->files.find(name); file != packed_->files.end()) return file->second;
  const auto tensors = packed_->safetensors.find(name);
  if (tensors == packed_->safetensors.end()) fail(ExitCode::input, "{} holds no {}", where(), name);
  return tensors->second.header;
}

uint64_t ModelFiles::size(std::string_view name) const {
  if (!packed_) return InputFile(path(name)).size();
  const auto tensors = packed_->safetensors.find(name);
  return tensors == packed_->safetensors.end() ? place(name).size : tensors->second.size;
}

InputFile ModelFiles::open(std::string_view name) const {
  InputFile file =
      packed_ ? InputFile(path_, path(name), place(name).offset, place(name).size) : InputFile(path(name));
  std::string begin(std::min<uint64_t>(file.size(), 64), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  if (begin.starts_with("version https://git-lfs"))
    throw Error(ExitCode::input, fmt::format("{} is a pointer of git-lfs, not the file itself", where(name)),
                "the model was cloned without git-lfs", fmt::format("git -C {} lfs pull", where()));
  if (is_web_page(begin, name.ends_with(".jinja")))
    throw Error(ExitCode::input, fmt::format("{} is a web page, not the file itself", where(name)),
                "a download was answered with a page, as for a model that asks for a login",
                "hf auth login, then hf download ORGANISATION/MODEL --local-dir DIRECTORY");
  return file;
}

std::string ModelFiles::text(std::string_view name, uint64_t most) const {
  const InputFile file = open(name);
  if (file.size() > most)
    fail(ExitCode::input, "{} has {} bytes; such a file has at most {}", where(name), file.size(), most);
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  if (packed_ && XXH64(text.data(), text.size(), 0) != place(name).hash)
    refuse_checksum(where(), std::string(name));
  return text;
}

}  // namespace maniple
