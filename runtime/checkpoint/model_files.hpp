// The one place that opens a model's files: a local directory in the Hugging Face layout.
#pragma once

#include <runtime/checkpoint/input_file.hpp>

#include <string_view>
#include <vector>

namespace maniple {

// Holds no file open. Every failure is an Error with ExitCode::input.
class ModelFiles {
 public:
  // Fails, saying what a model is, unless this is a directory. Any path may stand where a model is wanted.
  ModelFiles(std::filesystem::path directory);

  // For messages: the model, or a file of it.
  std::string where() const { return directory_.string(); }
  std::string where(std::string_view name) const { return path(name).string(); }
  std::filesystem::path path(std::string_view name) const { return directory_ / name; }

  std::vector<std::string> names() const;  // sorted
  // Also where it cannot be reached: opening it says why.
  bool has(std::string_view name) const;
  InputFile open(std::string_view name) const { return InputFile(path(name)); }
  // The whole of a file that has at most this many bytes.
  std::string text(std::string_view name, uint64_t most = uint64_t{16} << 20) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace maniple
