#include <kernels/support/check.hpp>
#include <kernels/support/counted.hpp>
#include <runtime/checkpoint/input_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace maniple {

namespace {

std::string reason_of(int error) { return std::generic_category().message(error); }

}  // namespace

std::string target_text(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(path, error);
  return error || std::filesystem::exists(path, error)
             ? ""
             : fmt::format(": it is a link to {}, which is not there", target.string());
}

// O_NONBLOCK: opening a named pipe must not wait for its writer. It has no effect on a regular file.
InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!descriptor_)
    fail(ExitCode::input, "cannot open {}: {}{}", path_.string(), reason_of(errno), target_text(path_));
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0)
    fail(ExitCode::input, "cannot read the size of {}: {}", path_.string(), reason_of(errno));
  if (!S_ISREG(status.st_mode)) fail(ExitCode::input, "{} is not a regular file", path_.string());
  size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::InputFile(std::filesystem::path path, std::filesystem::path shown, uint64_t begin, uint64_t size)
    : InputFile(std::move(path)) {
  path_ = std::move(shown);
  begin_ = begin;
  size_ = size;
}

// Advice: a system that does not take it is no error.
void InputFile::forget(uint64_t offset, uint64_t bytes) const {
  ::posix_fadvise(descriptor_.get(), static_cast<off_t>(begin_ + offset), static_cast<off_t>(bytes),
                  POSIX_FADV_DONTNEED);
}

void InputFile::read(uint64_t offset, std::span<std::byte> out) const {
  constexpr size_t max_per_call = size_t{1} << 30;  // Linux reads at most 2 GiB at once
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_.get(), out.data(), std::min(out.size(), max_per_call),
                                static_cast<off_t>(begin_ + offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail(ExitCode::input, "cannot read {} at byte {}: {}", path_.string(), offset, reason_of(errno));
    if (got == 0)
      fail(ExitCode::input,
           "{} ends at byte {}, but had {} when it was opened; is it being written or deleted?",
           path_.string(), offset, counted(size_, "byte"));
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
}

}  // namespace maniple
