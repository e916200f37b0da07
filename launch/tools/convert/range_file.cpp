#include <kernels/support/check.hpp>
#include <launch/tools/convert/range_file.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace maniple {
namespace {

[[noreturn]] void fail_to(const char* what, const std::filesystem::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw Error(
      ExitCode::fault,
      full ? fmt::format("no space left for {}", path.string())
           : fmt::format("cannot {} {}: {}", what, path.string(), std::generic_category().message(error)),
      "the target gets its name when all of it is written",
      full ? "make room (df, quota), then run the same command again"
           : "look at that file system, then run the same command again");
}

}  // namespace

RangeFile::RangeFile(std::filesystem::path path, How how)
    : path_(std::move(path)),
      descriptor_(
          ::open(path_.c_str(), O_RDWR | O_CLOEXEC | (how == How::create ? O_CREAT | O_TRUNC : 0), 0666)) {
  if (!descriptor_) fail_to("open", path_, errno);
}

void RangeFile::resize(uint64_t bytes) const {
  if (::ftruncate(descriptor_.get(), static_cast<off_t>(bytes)) != 0) fail_to("write", path_, errno);
}

void RangeFile::write(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to("write", path_, errno);
    // A hint: the disk begins now, and sync, which reports what fails, has less to wait for.
    ::sync_file_range(descriptor_.get(), static_cast<off_t>(offset), written, SYNC_FILE_RANGE_WRITE);
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void RangeFile::sync() const {
  if (::fsync(descriptor_.get()) != 0) fail_to("write", path_, errno);
}

// Some network file systems have no locks.
void RangeFile::lock() const {
  if (::flock(descriptor_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  throw Error(ExitCode::preflight, fmt::format("{} is being written by another process", path_.string()),
              "two would write into one file", "wait for it, or give another name");
}

std::filesystem::path part_of(const std::filesystem::path& to) { return to.string() + ".part"; }

void remove_left(const std::filesystem::path& to) {
  const std::filesystem::path part = part_of(to);
  std::error_code ignored;
  const auto refuse_if_written = [&](const std::filesystem::path& file) {
    if (std::filesystem::is_regular_file(file, ignored)) RangeFile(file, RangeFile::How::open).lock();
  };
  refuse_if_written(part);
  for (const auto& entry : std::filesystem::directory_iterator(part, ignored)) refuse_if_written(entry);
  for (const char* log : {".progress", ".progress.new"}) std::filesystem::remove(to.string() + log, ignored);
  std::filesystem::remove_all(part);
}

void check_room(const std::filesystem::path& path, uint64_t bytes) {
  const std::filesystem::path folder = path.parent_path().empty() ? "." : path.parent_path();
  struct statvfs system {};
  if (::statvfs(folder.c_str(), &system) != 0)
    fail(ExitCode::input, "cannot write into {}: {}", folder.string(),
         std::generic_category().message(errno));
  const uint64_t free = uint64_t{system.f_bavail} * system.f_frsize;
  if (free >= bytes) return;
  throw Error(ExitCode::preflight,
              fmt::format("no room for {}: it needs {} bytes, and {} are free", path.string(), bytes, free),
              "the conversion would fail in its middle",
              "make room (df), or give a path on another file system");
}

}  // namespace maniple
