// A regular file read at any offset, by any number of threads.
#pragma once

#include <kernels/support/file_descriptor.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace maniple {

// ": it is a link to X, which is not there"; empty for what is no such link.
std::string target_text(const std::filesystem::path& path);

// Every failure is an Error with ExitCode::input that names the file. Uses pread, not mmap: a file that
// shrinks or vanishes under the job is such an error, not a SIGBUS.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  // A range of it, as a file: offsets count from `begin`. shown: its path, in messages.
  InputFile(std::filesystem::path path, std::filesystem::path shown, uint64_t begin, uint64_t size);

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }  // bytes, when it was opened
  void read(uint64_t offset, std::span<std::byte> out) const;
  // The system need not keep these bytes in memory.
  void forget(uint64_t offset, uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  FileDescriptor descriptor_;
  uint64_t begin_ = 0, size_ = 0;
};

}  // namespace maniple
