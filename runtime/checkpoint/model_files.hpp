// The one place that opens a model's files: a local directory in the Hugging Face layout.
#pragma once

#include <runtime/checkpoint/input_file.hpp>

#include <string_view>
#include <vector>

namespace maniple {

// Holds no file open. Every failure is an Error with ExitCode::input.
class ModelFiles {
 public:
  // Implicit: a path may be passed as a model. Fails, with an explanation of what a model is, unless the path
  // is a directory.
  ModelFiles(std::filesystem::path directory);

  // For messages: the model, or a file of it.
  std::string where() const { return directory_.string(); }
  std::string where(std::string_view name) const { return path(name).string(); }
  std::filesystem::path path(std::string_view name) const { return directory_ / name; }

  std::vector<std::string> names() const;  // sorted
  // True also for a file that cannot be reached: open() then reports why.
  bool has(std::string_view name) const;
  // Refuses what an unfinished download leaves in a file's place: a git-lfs pointer, a web page.
  InputFile open(std::string_view name) const;
  // The content of a file. Fails if it has more than `most` bytes.
  std::string text(std::string_view name, uint64_t most = uint64_t{16} << 20) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace maniple
