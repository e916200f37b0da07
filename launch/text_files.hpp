// Lines in, lines out, with "-" for the standard streams. Both say which file failed and why.
#pragma once

#include <kernels/support/check.hpp>
#include <kernels/support/file_descriptor.hpp>
#include <launch/unpacker.hpp>

#include <fmt/format.h>

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// Fails (input): results would be those of another input than the one that was checked.
[[noreturn]] void refuse_changed(const std::string& name);

// Files that are read line by line, one after the other, and more than once; gzip and Zstandard are unpacked.
// What cannot be read again (stdin, a pipe) is copied to a temporary file first. They must stay as they are
// until the end.
class LineReader {
 public:
  struct Line {
    uint64_t number;  // from 1, over all files
    std::string text;
    std::string where = fmt::format("line {}", number);  // for messages
  };
  // The line of JSON that stands for a line of a text file.
  using FromText = std::function<std::string(const Line&)>;

  // Both fail (input) when one cannot be opened. Without from_text, text files hold JSON lines like others.
  explicit LineReader(const std::string& path) : LineReader(std::vector{path}) {}
  explicit LineReader(const std::vector<std::string>& paths, FromText from_text = {});

  const std::string& name() const { return name_; }  // of all files, for messages
  // Of the bytes as they are on the disk, which are read once for it.
  uint64_t hash();

  // The next line that is not blank, without its end; nothing at the end of the last file. Fails (input) when
  // it cannot be read, is no text with a line for each request, or was changed since it was opened.
  std::optional<Line> next();
  void rewind();

 private:
  friend class OutputFile;
  struct File {
    std::string name;
    struct stat opened;  // what was opened, which may be a pipe
    FileDescriptor descriptor;
  };

  void open_current();
  bool read_line(std::string& line);
  bool refill();
  void look_at_beginning();
  void check_unchanged() const;

  FromText from_text_;
  std::string name_;
  std::optional<uint64_t> hash_;
  std::vector<File> files_;
  size_t current_ = 0;
  // Of the current file:
  std::unique_ptr<Unpacker> stream_;
  bool begun_ = false;
  bool of_text_ = false;
  std::string buffer_;
  size_t used_ = 0;            // of the buffer
  uint64_t lines_before_ = 0;  // the current file
  uint64_t number_ = 0;        // in the current file
};

// May the content of a file give way to new results? Asked for; or Slurm has started the job again, so that
// the job itself has left it.
struct Overwrite {
  bool asked = false;
  bool requeued = false;
  bool quiet = false;  // a requeue is not told of
};
// Fails (input) where path is a file with content that may not go. Pipes, terminals and devices, and "-" for
// stdout, hold none.
void check_overwrite(const std::filesystem::path& path, const Overwrite& overwrite);

// The exit code where the reader of a pipe leaves before the end: the shell's for a program that SIGPIPE
// ended. Such an end is silent.
inline constexpr ExitCode reader_left{128 + SIGPIPE};

// Every write reaches the file at once or throws: Error (input) when it cannot be opened, Error (fault) when
// it cannot be written, or of code reader_left.
class OutputFile {
 public:
  // "-" for stdout. The old content stays until clear(), so that a run that cannot start loses nothing.
  explicit OutputFile(const std::string& path);

  bool is_one_of(const LineReader& input) const;
  void clear();
  void write(std::string_view text);
  // Makes sure that all of it is on the disk.
  void close();

 private:
  [[noreturn]] void fail_to_write() const;

  std::string name_;
  FileDescriptor owned_;  // stdout is not ours to close
  int descriptor_ = STDOUT_FILENO;
  size_t size_ = 0;  // of what was written whole
};

}  // namespace maniple
