#include <kernels/support/counted.hpp>
#include <launch/output/output_file.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <tuple>

namespace maniple {
namespace {

std::string reason_of(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail_to_open(const std::string& name) {
  throw Error(ExitCode::input, fmt::format("cannot write {}: {}", name, reason_of(errno)),
              "nothing was loaded or computed yet",
              "choose a file in a folder that exists and where you may write");
}

}  // namespace

void check_overwrite(const std::filesystem::path& path, const Overwrite& overwrite) {
  struct stat status {};
  const bool holds =
      path != "-" && ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
  if (!holds || overwrite.asked) return;
  if (overwrite.requeued) {
    if (!overwrite.quiet)
      fmt::print(stderr, "maniple: note: Slurm has requeued this job: it starts over, and overwrites {}\n",
                 path.string());
    return;
  }
  throw Error(ExitCode::input,
              fmt::format("{} is there already, {}", path.string(),
                          counted(static_cast<uint64_t>(status.st_size), "byte")),
              "they may be the results of an earlier job, and this one would overwrite them",
              "choose another file, or add --overwrite");
}

void check_output(const std::filesystem::path& path, const Overwrite& overwrite, const LineReader* input) {
  struct stat status {};
  const bool is_stdout = path == "-";
  const int unknown = is_stdout ? ::fstat(STDOUT_FILENO, &status) : ::stat(path.c_str(), &status);
  if (unknown == 0 && input && input->reads(status))
    fail(ExitCode::usage, "--in and the output are the same file, {}; write the results to another one",
         is_stdout ? "stdout" : path.string());
  if (is_stdout) return;
  check_overwrite(path, overwrite);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (::access(unknown == 0 ? path.c_str() : folder.c_str(), W_OK) != 0) fail_to_open(path.string());
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ExitCode::input, "cannot make the folder {}: {}", folder.string(), error.message());
}

void flush_stdout() {
  if (std::fflush(stdout) != 0) fail(ExitCode::fault, "cannot write to stdout: {}", reason_of(errno));
}

OutputFile::OutputFile(const std::string& path) : name_(path == "-" ? "stdout" : path) {
  if (path == "-") {
    const int flags = ::fcntl(descriptor_, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
      fail(ExitCode::input, "stdout is closed; write to a file instead");
    return;
  }
  owned_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!owned_) fail_to_open(name_);
  descriptor_ = owned_.get();
}

// Empties only a named file: other programs may append to the file behind stdout.
void OutputFile::clear() {
  struct stat status {};
  if (!owned_ || ::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (::ftruncate(descriptor_, 0) != 0) fail_to_write();
}

void OutputFile::write(std::string_view text) {
  const size_t whole = text.size();
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to_write();
    text.remove_prefix(static_cast<size_t>(written));
  }
  size_ += whole;
}

void OutputFile::close() {
  struct stat status {};
  if (::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 0)
    throw Error(ExitCode::fault, fmt::format("{} was removed while maniple wrote it", name_),
                "the results are lost", "run the same command again");
  constexpr std::array not_a_disk = {EINVAL, EROFS, EBADF, ENOTSUP};
  if (::fsync(descriptor_) != 0 && std::ranges::find(not_a_disk, errno) == not_a_disk.end()) fail_to_write();
  owned_.reset();
}

void OutputFile::fail_to_write() const {
  const int error = errno;
  if (owned_) std::ignore = ::ftruncate(descriptor_, static_cast<off_t>(size_));  // no half lines
  if (error == EPIPE) fail(closed_pipe, "{} has no reader any more", name_);
  const bool full = error == ENOSPC || error == EDQUOT;
  throw Error(ExitCode::fault, fmt::format("cannot write results to {}: {}", name_, reason_of(error)),
              "the results written before are whole lines, the others are lost",
              fmt::format("{}choose another file",
                          full ? "make room and run the same command again with --overwrite, or " : ""));
}

}  // namespace maniple
