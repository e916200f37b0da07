// --follow: lines of stdin or a FIFO as they come, for whoever sends the next one when the last is answered.
#pragma once

#include <launch/input/requests.hpp>

#include <optional>
#include <string>

namespace maniple {

class FollowedInput {
 public:
  // "-" for stdin. Waits for nobody: not for who will write to a FIFO either. Fails (usage) on what has all
  // its lines already, and (input) where it cannot be opened.
  explicit FollowedInput(const std::string& path);

  // The next line that is not blank, without its end; nothing behind the last. A line without text: none has
  // come for a moment. Fails (input) when it cannot be read.
  std::optional<LineReader::Line> next();

 private:
  // The next line that has come whole, blank or not.
  std::optional<std::string> take_line();
  // False when nothing has come for a moment.
  bool receive();

  std::string name_;
  FileDescriptor file_;
  std::string buffer_;
  size_t used_ = 0;  // of the buffer
  bool ended_ = false;
  uint64_t number_ = 0;  // of the line
};

// Of a line that parse_request refuses: the id that it has in spite of it, else its number.
RequestLabel label_of_bad_line(const LineReader::Line& line);

}  // namespace maniple
