// Lines in, lines out, with "-" for the standard streams. Both say which file failed and why.
#pragma once

#include <kernels/support/file_descriptor.hpp>

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace maniple {

// A file that is read line by line, and more than once. What cannot be read again (stdin, a pipe) is copied
// to a temporary file first.
class LineReader {
 public:
  // Fails (input) when it cannot be opened.
  explicit LineReader(const std::string& path);

  const std::string& name() const { return name_; }  // for messages
  int descriptor() const { return ::fileno(file_.get()); }

  // The next line that is not blank, without its end; nothing at the end of the file. Fails (input) when it
  // cannot be read.
  struct Line {
    uint64_t number;  // from 1
    std::string text;
  };
  std::optional<Line> next();
  void rewind();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  static File seekable(File file, const std::string& name);
  bool read_line(std::string& line);

  std::string name_;
  File file_;
  uint64_t number_ = 0;
};

// Every write reaches the file at once or throws: Error (input) when it cannot be opened, Error (fault) when
// it cannot be written.
class OutputFile {
 public:
  // "-" for stdout. The old content stays until clear(), so that a run that cannot start loses nothing.
  explicit OutputFile(const std::string& path);

  bool is_same_file(int descriptor) const;
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
