#include <kernels/support/check.hpp>
#include <launch/text_files.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <tuple>
#include <vector>

namespace maniple {

namespace {

std::string reason_of(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail_to_read(const std::string& name) {
  fail(ExitCode::input, "cannot read {}: {}", name, reason_of(errno));
}

}  // namespace

LineReader::LineReader(const std::string& path) : name_(path == "-" ? "stdin" : path) {
  File file(path == "-" ? ::fdopen(::dup(STDIN_FILENO), "r") : std::fopen(path.c_str(), "re"));
  if (!file) fail(ExitCode::input, "cannot open {}: {}", name_, reason_of(errno));
  file_ = seekable(std::move(file), name_);
}

LineReader::File LineReader::seekable(File file, const std::string& name) {
  struct stat status {};
  if (::fstat(::fileno(file.get()), &status) == 0 && S_ISREG(status.st_mode)) return file;
  File copy(std::tmpfile());
  if (!copy) fail(ExitCode::input, "cannot make a temporary file for {}: {}", name, reason_of(errno));
  std::vector<char> buffer(size_t{1} << 16);
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get()))
    if (std::fwrite(buffer.data(), 1, got, copy.get()) != got)
      fail(ExitCode::input, "cannot copy {} to a temporary file: {}", name, reason_of(errno));
  if (std::ferror(file.get())) fail_to_read(name);
  if (std::fflush(copy.get()) != 0)
    fail(ExitCode::input, "cannot copy {} to a temporary file: {}", name, reason_of(errno));
  std::rewind(copy.get());
  return copy;
}

bool LineReader::read_line(std::string& line) {
  char* text = nullptr;
  size_t capacity = 0;
  const ssize_t length = ::getline(&text, &capacity, file_.get());
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  if (length < 0 && std::ferror(file_.get())) fail_to_read(name_);
  if (length < 0) return false;
  line.assign(text, static_cast<size_t>(length));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return true;
}

std::optional<LineReader::Line> LineReader::next() {
  std::string text;
  while (read_line(text)) {
    ++number_;
    if (text.find_first_not_of(" \t") != std::string::npos) return Line{number_, std::move(text)};
  }
  return std::nullopt;
}

void LineReader::rewind() {
  std::rewind(file_.get());
  number_ = 0;
}

OutputFile::OutputFile(const std::string& path) : name_(path == "-" ? "stdout" : path) {
  if (path == "-") {
    const int flags = ::fcntl(descriptor_, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
      fail(ExitCode::input, "stdout is closed; give --out FILE");
    return;
  }
  owned_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!owned_)
    throw Error(ExitCode::input, fmt::format("cannot write {}: {}", name_, reason_of(errno)),
                "nothing was loaded or computed yet",
                "give --out a file in a folder that exists and where you may write");
  descriptor_ = owned_.get();
}

bool OutputFile::is_same_file(int descriptor) const {
  struct stat mine {
  }, other{};
  return ::fstat(descriptor_, &mine) == 0 && ::fstat(descriptor, &other) == 0 && S_ISREG(mine.st_mode) &&
         mine.st_dev == other.st_dev && mine.st_ino == other.st_ino;
}

// Only a named file is emptied: stdout may be one that others append to.
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
  constexpr std::array not_a_disk = {EINVAL, EROFS, EBADF, ENOTSUP};
  if (::fsync(descriptor_) != 0 && std::ranges::find(not_a_disk, errno) == not_a_disk.end()) fail_to_write();
  owned_.reset();
}

void OutputFile::fail_to_write() const {
  const int error = errno;
  if (owned_) std::ignore = ::ftruncate(descriptor_, static_cast<off_t>(size_));  // no half lines
  const bool full = error == ENOSPC || error == EDQUOT;
  throw Error(ExitCode::fault, fmt::format("cannot write results to {}: {}", name_, reason_of(error)),
              "the results written before are whole lines, the others are lost",
              full ? "make room or choose another file with --out, then run the same command again"
                   : "choose another file with --out, then run the same command again");
}

}  // namespace maniple
