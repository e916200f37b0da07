// --follow: lines of stdin or a FIFO as they arrive, for a sender that may wait for each answer.
#pragma once

#include <launch/input/requests.hpp>

#include <optional>
#include <string>

namespace maniple {

class FollowedInput {
 public:
  // "-" for stdin. Does not wait for a FIFO's writer. Fails (usage) on a
  // regular file or a directory, and (input) if the path cannot be opened.
  explicit FollowedInput(const std::string& path);

  // The next line that is not blank, without its line end; nothing after the last one. A line
  // without text: none has arrived for a moment. Fails (input) if the file cannot be read.
  std::optional<LineReader::Line> next();

 private:
  // The next complete line in the buffer, blank or not.
  std::optional<std::string> take_line();
  // False if nothing has arrived for a moment.
  bool receive();

  std::string name_;
  FileDescriptor file_;
  std::string buffer_;
  size_t used_ = 0;  // of the buffer
  bool ended_ = false;
  uint64_t number_ = 0;  // of the line
};

// For a line that parse_request refuses: its id if that is readable, else its number.
RequestLabel label_of_bad_line(const LineReader::Line& line);

}  // namespace maniple
