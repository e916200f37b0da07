#include <kernels/support/check.hpp>
#include <runtime/checkpoint/model_files.hpp>

#include <algorithm>

namespace maniple {

namespace fs = std::filesystem;

ModelFiles::ModelFiles(fs::path directory) : directory_(std::move(directory)) {
  std::error_code ignored;
  if (fs::is_directory(directory_, ignored)) return;
  const bool exists = fs::exists(directory_, ignored);
  throw Error(
      ExitCode::input, fmt::format("{} {}", where(), exists ? "is not a directory" : "does not exist"),
      "maniple reads local directories with config.json and safetensors files; it downloads nothing by name",
      "give the model's directory; download one with: hf download ORGANISATION/MODEL --local-dir DIRECTORY");
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory_, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) fail(ExitCode::input, "cannot list {}: {}", where(), error.message());
  std::ranges::sort(names);
  return names;
}

bool ModelFiles::has(std::string_view name) const {
  std::error_code ignored;
  return fs::status(path(name), ignored).type() != fs::file_type::not_found;
}

InputFile ModelFiles::open(std::string_view name) const {
  InputFile file(path(name));
  std::string begin(std::min<uint64_t>(file.size(), 32), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  if (begin.starts_with("version https://git-lfs"))
    throw Error(ExitCode::input, fmt::format("{} is a pointer of git-lfs, not the file itself", where(name)),
                "the model was cloned without git-lfs",
                fmt::format("git -C {} lfs pull", directory_.string()));
  if (begin.starts_with('<'))
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
  return text;
}

}  // namespace maniple
