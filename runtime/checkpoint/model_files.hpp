// The one place that opens a model's files: a local directory in the Hugging Face layout, or a packed model (packed_index).
#pragma once

#include <runtime/checkpoint/packed_index.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// Holds no file open. Every failure is an Error with ExitCode::input.
class ModelFiles {
 public:
  // Implicit: a path may be passed as a model. Fails, with an explanation of what a model is, unless the path
  // is a directory or a packed model.
  ModelFiles(std::filesystem::path path);

  // For messages: the model, or a file of it.
  std::string where() const { return path_.string(); }
  std::string where(std::string_view name) const { return path(name).string(); }
  std::string name() const;  // of the directory or file
  std::filesystem::path path(std::string_view name) const { return path_ / name; }
  std::vector<std::filesystem::path> weight_files() const;  // on the disk: *.safetensors, or the packed model
  const PackedIndex* packed() const { return packed_.get(); }  // null for a directory

  std::vector<std::string> names() const;  // sorted; with the templates of templates_folder
  std::vector<std::string> names(std::string_view ending) const;
  // True also for a file that cannot be reached: open() then reports why.
  bool has(std::string_view name) const;
  // Refuses what an unfinished download leaves in a file's place: a git-lfs pointer, a web page. Of a safetensors file in a
  // packed model: its header alone.
  InputFile open(std::string_view name) const;
  uint64_t size(std::string_view name) const;  // of the whole file
  // The content of a file. Fails if it has more than `most` bytes.
  std::string text(std::string_view name, uint64_t most = uint64_t{16} << 20) const;

 private:
  const PackedBytes& place(std::string_view name) const;  // in the packed model

  std::filesystem::path path_;
  std::shared_ptr<const PackedIndex> packed_;
};

}  // namespace maniple
