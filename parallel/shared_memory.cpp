#include <kernels/support/file_descriptor.hpp>
#include <parallel/collectives.hpp>
#include <parallel/shared_memory.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>

namespace maniple {

namespace {

FileDescriptor open_file(const std::string& name, int flags) {
  return FileDescriptor(::shm_open(name.c_str(), O_RDWR | flags, 0600));
}

bool reserve(const FileDescriptor& file, size_t begin, size_t bytes) {
  return file && ::posix_fallocate(file.get(), static_cast<off_t>(begin), static_cast<off_t>(bytes)) == 0;
}

SharedMemory map(const FileDescriptor& file, size_t bytes) {
  if (!file) return nullptr;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(memory), [bytes](std::byte* mapped) { ::munmap(mapped, bytes); }};
}

bool all_agree(Transport& ranks, bool mine) {
  return std::ranges::count(all_gather_bytes(ranks, mine ? "1" : "0"), "0") == 0;
}

}  // namespace

std::string drawn_shared_name() {
  std::random_device device;
  return fmt::format("/maniple-{:08x}{:08x}", device(), device());
}

SharedMemory create_shared_memory(const std::string& name, size_t bytes) {
  const FileDescriptor file = open_file(name, O_CREAT | O_EXCL);
  return reserve(file, 0, bytes) ? map(file, bytes) : nullptr;
}

SharedMemory open_shared_memory(const std::string& name, size_t bytes) {
  return map(open_file(name, 0), bytes);
}

void unlink_shared_memory(const std::string& name) { ::shm_unlink(name.c_str()); }

SharedMemory share_memory(Transport& ranks, size_t bytes_of_rank) {
  const bool creates = ranks.rank() == 0;
  std::string name = creates ? drawn_shared_name() : "";
  FileDescriptor file;
  if (creates) file = open_file(name, O_CREAT | O_EXCL);
  broadcast_bytes(ranks, name, 0);
  if (!creates) file = open_file(name, 0);
  const bool opened = all_agree(ranks, bool(file));
  if (creates) unlink_shared_memory(name);
  if (!opened) return nullptr;
  const size_t begin = static_cast<size_t>(ranks.rank()) * bytes_of_rank;
  if (!all_agree(ranks, reserve(file, begin, bytes_of_rank))) return nullptr;
  SharedMemory memory = map(file, static_cast<size_t>(ranks.size()) * bytes_of_rank);
  return all_agree(ranks, memory != nullptr) ? memory : nullptr;
}

}  // namespace maniple
