// Files that survive the end of this process, or of the machine, at any moment.
// Every failure is an Error (fault) that names the file and says what to do.
#pragma once

#include <kernels/support/file_descriptor.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace maniple {

// A new append-only file.
class DurableFile {
 public:
  // Fails if the path exists.
  explicit DurableFile(std::filesystem::path path);

  uint64_t size() const { return size_ + buffer_.size(); }  // including buffered bytes
  void append(std::string_view bytes);                      // buffered
  void flush();  // to the operating system: survives the end of this process
  void sync();   // to the disk: survives a crash of the machine
  void lock();   // for is_locked(); some network file systems have no locks

 private:
  [[noreturn]] void fail_to_write() const;

  std::filesystem::path path_;
  FileDescriptor descriptor_;
  std::string buffer_;
  uint64_t size_ = 0;  // of what was written
};

// Writes a file beside it, syncs, renames: readers see the
// whole old file or the whole new one, even after a crash.
void replace_file(const std::filesystem::path& path, const std::function<void(DurableFile&)>& write);
void replace_file(const std::filesystem::path& path, std::string_view content);
// Only the first of several writers, on any machines, creates the file, whole as
// above. False if the file exists. Not synced: it survives the end of this process.
bool create_file(const std::filesystem::path& path, std::string_view content);
// Removes the temporary files of replacements that a crash interrupted.
void remove_unfinished_files(const std::filesystem::path& folder);

// Whether a living process has locked the file.
bool is_locked(const std::filesystem::path& path);

// Makes the names in a folder durable.
void sync_directory(const std::filesystem::path& folder);

// Nothing if there is no such file.
std::optional<std::string> read_optional_file(const std::filesystem::path& path);

}  // namespace maniple
