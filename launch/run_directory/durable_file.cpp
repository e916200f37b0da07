#include <kernels/support/check.hpp>
#include <launch/run_directory/durable_file.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <tuple>

namespace maniple {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view unfinished = ".unfinished";
constexpr size_t buffer_bytes = size_t{1} << 18;

[[noreturn]] void fail_to(const char* what, const fs::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw Error(ExitCode::fault,
              fmt::format("cannot {} {}: {}", what, path.string(), std::generic_category().message(error)),
              "results that were recorded before are safe; those since then would be lost",
              full ? "make room (df, quota, ulimit -f), then run the same command again"
                   : "look at that file system, then run the same command again");
}

// A second writer (a job that was cut off and does not know it) must not write into the same file.
fs::path name_beside(const fs::path& path) {
  struct utsname machine {};
  ::uname(&machine);
  return fmt::format("{}.{}-{}{}", path.string(), machine.nodename, ::getpid(), unfinished);
}

fs::path written_beside(const fs::path& path, const std::function<void(DurableFile&)>& write) {
  fs::path beside = name_beside(path);
  ::unlink(beside.c_str());
  try {
    DurableFile file(beside);
    write(file);
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  return beside;
}

}  // namespace

DurableFile::DurableFile(fs::path path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (!descriptor_) fail_to("create", path_, errno);
}

void DurableFile::append(std::string_view bytes) {
  buffer_ += bytes;
  if (buffer_.size() >= buffer_bytes) flush();
}

// Written bytes leave the buffer at once, so a later attempt goes on where this one failed.
void DurableFile::flush() {
  while (!buffer_.empty()) {
    const ssize_t written = ::write(descriptor_.get(), buffer_.data(), buffer_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to_write();
    size_ += static_cast<uint64_t>(written);
    buffer_.erase(0, static_cast<size_t>(written));
  }
}

void DurableFile::sync() {
  flush();
  if (::fdatasync(descriptor_.get()) != 0) fail_to_write();
}

void DurableFile::fail_to_write() const { fail_to("write", path_, errno); }

void DurableFile::lock() { std::ignore = ::flock(descriptor_.get(), LOCK_EX | LOCK_NB); }

bool is_locked(const fs::path& path) {
  const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return descriptor && ::flock(descriptor.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void replace_file(const fs::path& path, const std::function<void(DurableFile&)>& write) {
  const fs::path beside = written_beside(path, [&](DurableFile& file) {
    write(file);
    file.sync();
  });
  if (::rename(beside.c_str(), path.c_str()) != 0) fail_to("replace", path, errno);
  sync_directory(path.parent_path());
}

void replace_file(const fs::path& path, std::string_view content) {
  replace_file(path, [content](DurableFile& file) { file.append(content); });
}

bool create_file(const fs::path& path, std::string_view content) {
  const fs::path beside = written_beside(path, [content](DurableFile& file) {
    file.append(content);
    file.flush();
  });
  const int error = ::link(beside.c_str(), path.c_str()) == 0 ? 0 : errno;
  ::unlink(beside.c_str());
  if (error != 0 && error != EEXIST) fail_to("create", path, error);
  return error == 0;
}

void remove_unfinished_files(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().native().ends_with(unfinished)) fs::remove(entry.path(), ignored);
}

void sync_directory(const fs::path& folder) {
  const FileDescriptor descriptor(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor) fail_to("open", folder, errno);
  // Some network file systems cannot sync folders, because names are durable there at once.
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL && errno != ENOTSUP) fail_to("sync", folder, errno);
}

std::optional<std::string> read_optional_file(const fs::path& path) {
  const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor && errno == ENOENT) return std::nullopt;
  if (!descriptor) fail_to("open", path, errno);
  std::string content;
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while ((got = ::read(descriptor.get(), part.data(), part.size())) != 0) {
    if (got < 0 && errno != EINTR) fail_to("read", path, errno);
    if (got > 0) content.append(part.data(), static_cast<size_t>(got));
  }
  return content;
}

}  // namespace maniple
