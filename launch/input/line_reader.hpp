// Reads lines from files, pipes and stdin ("-"). Errors say which file failed and why.
#pragma once

#include <kernels/support/file_descriptor.hpp>
#include <launch/input/unpacker.hpp>

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

// Fails (input): results would be those of another input than the one that was checked.
[[noreturn]] void refuse_changed(const std::string& name);

// Reads files line by line, one after the other, more than once; unpacks gzip and Zstandard. First copies
// a pipe, which cannot be read again, to a temporary file. The files must not change until the end.
class LineReader {
 public:
  struct Line {
    uint64_t number;  // from 1, over all files
    std::string text;
    std::string where = fmt::format("line {}", number);  // for messages
  };
  // Makes the line of JSON for a line of a text file.
  using JsonOfText = std::function<std::string(const Line&)>;

  // Both fail (input) if a file cannot be opened. Without from_text, text files must hold JSON lines too.
  explicit LineReader(const std::string& path) : LineReader(std::vector{path}) {}
  explicit LineReader(const std::vector<std::string>& paths, JsonOfText from_text = {});

  const std::string& name() const { return name_; }  // of all files, for messages
  // Of the bytes on the disk (packed files stay packed). Reads them once.
  uint64_t hash();

  bool has_text() const { return has_text_; }  // lines of text files were among those that it has read
  // Whether it reads that file.
  bool reads(const struct stat& file) const {
    struct stat ours = {};
    return S_ISREG(file.st_mode) && std::ranges::any_of(files_, [&](const File& other) {
             return ::fstat(other.descriptor.get(), &ours) == 0 && ours.st_dev == file.st_dev &&
                    ours.st_ino == file.st_ino;
           });
  }

  // The next line that is not blank, without its line end; nothing after the last file. Fails
  // (input) if the file cannot be read, is of a foreign kind, or was changed since it was opened.
  std::optional<Line> next();
  void rewind();
  // "line 3", of a line that next() has returned, with its file where there are several.
  std::string where_of(uint64_t line) const;

 private:
  struct File {
    std::string name;
    struct stat opened;  // status of the opened file, which may be a pipe
    FileDescriptor descriptor;
    uint64_t lines_before = 0;  // in the files before it, once they are read
  };

  void open_current();
  bool read_line(std::string& line);
  bool refill();
  void look_at_beginning();
  void check_unchanged() const;

  JsonOfText from_text_;
  std::string name_;
  std::optional<uint64_t> hash_;
  bool has_text_ = false;
  std::vector<File> files_;
  size_t current_ = 0;
  // Of the current file:
  std::unique_ptr<Unpacker> stream_;
  bool begun_ = false;
  bool of_text_ = false;
  std::string buffer_;
  size_t used_ = 0;      // of the buffer
  uint64_t number_ = 0;  // in the current file
};

}  // namespace maniple
