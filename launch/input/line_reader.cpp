#include <kernels/support/check.hpp>
#include <launch/input/input_format.hpp>
#include <launch/input/line_reader.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdio>
#include <utility>

namespace maniple {
namespace {

constexpr unsigned chunk_bytes = 1U << 18;

struct stat status_of(const FileDescriptor& file, const std::string& name) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_to("read", name);
  return status;
}

FileDescriptor seekable(FileDescriptor file, const struct stat& status, const std::string& name) {
  if (S_ISREG(status.st_mode)) return file;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> copy(std::tmpfile(), &std::fclose);
  if (!copy) fail_to("make a temporary file for", name);
  std::vector<char> part(chunk_bytes);
  while (const ssize_t got = ::read(file.get(), part.data(), part.size())) {
    if (got < 0) fail_to("read", name);
    const auto count = static_cast<size_t>(got);
    if (std::fwrite(part.data(), 1, count, copy.get()) != count || std::fflush(copy.get()) != 0)
      fail_to("copy", name + " to a temporary file");
  }
  return FileDescriptor(::dup(::fileno(copy.get())));
}

}  // namespace

void refuse_changed(const std::string& name) {
  throw Error(ExitCode::input, fmt::format("{} was changed while it was read", name),
              "its results would be those of another input than the one that was checked",
              "put the old content back, then run the same command again (with --overwrite for --out)");
}

LineReader::LineReader(const std::vector<std::string>& paths, JsonOfText from_text)
    : from_text_(std::move(from_text)) {
  for (const std::string& path : paths) {
    const std::string name = path == "-" ? "stdin" : path;
    FileDescriptor file(path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) fail_to("open", name);
    const struct stat opened = status_of(file, name);
    files_.push_back({name, opened, seekable(std::move(file), opened, name)});
    name_ += (name_.empty() ? "" : ", ") + name;
  }
  open_current();
}

uint64_t LineReader::hash() {
  if (hash_) return *hash_;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<char> part(chunk_bytes);
  for (const File& file : files_) {
    off_t offset = 0;
    while (const size_t got = read_at(file.descriptor.get(), offset, part, file.name)) {
      XXH3_64bits_update(state.get(), part.data(), got);
      offset += static_cast<off_t>(got);
    }
    XXH3_64bits_update(state.get(), &offset, sizeof(offset));  // where one file ends and the next begins
  }
  return hash_.emplace(XXH3_64bits_digest(state.get()));
}

void LineReader::open_current() {
  stream_ = open_unpacker(files_[current_].descriptor.get(), files_[current_].name);
  begun_ = false;
  buffer_.clear();
  used_ = 0;
  number_ = 0;
}

bool LineReader::refill() {
  buffer_.resize(chunk_bytes);
  try {
    buffer_.resize(stream_->read(buffer_));
  } catch (const Error&) {
    check_unchanged();
    throw;
  }
  used_ = 0;
  check_unchanged();
  if (!std::exchange(begun_, true)) look_at_beginning();
  return !buffer_.empty();
}

void LineReader::look_at_beginning() {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  const std::string& name = files_[current_].name;
  refuse_foreign_bytes(buffer_, name);
  of_text_ = from_text_ && holds_prompts(buffer_, name);
  has_text_ |= of_text_;
  if (!of_text_) return refuse_foreign_json(buffer_, name);
  if (buffer_.starts_with(byte_order_mark)) used_ = byte_order_mark.size();
}

// Called after each read: if it passes, the bytes are the
// old content. Nobody else can write to the copy of a pipe.
void LineReader::check_unchanged() const {
  const auto& [name, opened, descriptor, before] = files_[current_];
  if (!S_ISREG(opened.st_mode)) return;
  const struct stat now = status_of(descriptor, name);
  if (now.st_size != opened.st_size || now.st_mtim.tv_sec != opened.st_mtim.tv_sec ||
      now.st_mtim.tv_nsec != opened.st_mtim.tv_nsec)
    refuse_changed(name);
}

bool LineReader::read_line(std::string& line) {
  line.clear();
  bool begun = false;
  while (used_ < buffer_.size() || refill()) {
    begun = true;
    const size_t end = buffer_.find('\n', used_);
    line.append(buffer_, used_, end - used_);
    used_ = end == std::string::npos ? buffer_.size() : end + 1;
    if (end != std::string::npos) break;
  }
  while (!line.empty() && line.back() == '\r') line.pop_back();
  return begun;
}

std::optional<LineReader::Line> LineReader::next() {
  std::string text;
  while (true) {
    while (read_line(text)) {
      ++number_;
      if (text.find_first_not_of(" \t") == std::string::npos) continue;
      Line line{files_[current_].lines_before + number_, std::move(text)};
      if (files_.size() > 1 || of_text_)
        line.where = fmt::format("{} line {}", files_[current_].name, number_);
      if (of_text_) line.text = from_text_(line);
      return line;
    }
    if (current_ + 1 == files_.size()) return std::nullopt;
    const uint64_t before = files_[current_].lines_before + number_;
    files_[++current_].lines_before = before;
    open_current();
  }
}

void LineReader::rewind() {
  current_ = 0;
  open_current();
}

std::string LineReader::where_of(uint64_t line) const {
  size_t file = current_;
  while (files_[file].lines_before >= line) --file;
  if (files_.size() == 1) return fmt::format("line {}", line);
  return fmt::format("{} line {}", files_[file].name, line - files_[file].lines_before);
}

}  // namespace maniple
