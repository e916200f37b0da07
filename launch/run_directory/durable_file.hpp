// Files that survive the end of this process, or of the machine, at any moment. Every failure is an Error
// (fault) that names the file and says what to do.
#pragma once

#include <kernels/support/file_descriptor.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace maniple {

// A new file that only grows.
class DurableFile {
 public:
  // Fails where the path exists.
  explicit DurableFile(std::filesystem::path path);

  uint64_t size() const { return size_ + buffer_.size(); }  // with what is still buffered
  void append(std::string_view bytes);                      // buffered
  void flush();  // to the operating system: the end of this process loses nothing of it
  void sync();   // to the disk: nor does the end of the machine

 private:
  [[noreturn]] void fail_to_write() const;

  std::filesystem::path path_;
  FileDescriptor descriptor_;
  std::string buffer_;
  uint64_t size_ = 0;  // of what was written
};

// Readers and crashes see the old file or the new one, whole: writes beside it, syncs, renames.
void replace_file(const std::filesystem::path& path, const std::function<void(DurableFile&)>& write);
void replace_file(const std::filesystem::path& path, std::string_view content);
// For the first of several writers, on whichever machines: whole at once, as above. False where the file is
// there already. Not synced: it survives the end of this process.
bool create_file(const std::filesystem::path& path, std::string_view content);
// What replacements that a crash cut off have left in the folder.
void remove_unfinished_files(const std::filesystem::path& folder);

// Makes the names in a folder durable.
void sync_directory(const std::filesystem::path& folder);

// Nothing where there is no such file.
std::optional<std::string> read_if_there(const std::filesystem::path& path);

}  // namespace maniple
