// A file that is written at any offset, by any number of threads.
#pragma once

#include <kernels/support/file_descriptor.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace maniple {

// Why a failure to write is no loss.
constexpr const char* written_stays =
    "what is written stays, and the target does not exist before all of it is written";

// Every failure is an Error (fault) that names the file; of a full disk it says that the same command goes on.
class RangeFile {
 public:
  enum class How { create, open };
  RangeFile(std::filesystem::path path, How how);

  void resize(uint64_t bytes) const;  // what is added reads as zeros and takes no room yet
  void write(uint64_t offset, std::span<const std::byte> bytes) const;
  void write(uint64_t offset, std::string_view bytes) const {
    write(offset, std::as_bytes(std::span(bytes)));
  }
  void sync() const;
  bool lock() const;                 // false: another process holds the lock
  uint64_t allocated_bytes() const;  // on the disk

 private:
  std::filesystem::path path_;
  FileDescriptor descriptor_;
};

// Fails (preflight): another process holds the lock of what this one would write.
[[noreturn]] void refuse_second_writer(const std::filesystem::path& path);

// Fails (preflight) unless the file system of the path's folder has room for that many bytes.
void check_room(const std::filesystem::path& path, uint64_t bytes);

}  // namespace maniple
