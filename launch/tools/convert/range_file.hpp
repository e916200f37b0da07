// A file that is written at any offset, by any number of threads.
#pragma once

#include <kernels/support/file_descriptor.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace maniple {

// Every failure is an Error (fault) that names the file.
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
  void lock() const;  // fails (preflight): another process holds the lock

 private:
  std::filesystem::path path_;
  FileDescriptor descriptor_;
};

// A conversion writes it, and renames it to `to` when it is whole.
std::filesystem::path part_of(const std::filesystem::path& to);
// Removes what a killed conversion to `to` has left, also the log that maniple 0.3 kept. Fails (preflight) while it is written.
void remove_left(const std::filesystem::path& to);

// Fails (preflight) unless the file system of the path's folder has room for that many bytes.
void check_room(const std::filesystem::path& path, uint64_t bytes);

}  // namespace maniple
