// What a conversion has written so far, in a file beside its target: after a kill the same command goes on from there.
#pragma once

#include <launch/run_directory/framed_log.hpp>

#include <map>
#include <vector>

namespace maniple {

using FinishedPieces = std::map<size_t, std::vector<uint64_t>>;  // hashes, by number

// Of the conversion to a target: its log, and where a target that it replaces waits.
std::filesystem::path replaced_by(const std::filesystem::path& to);
std::filesystem::path progress_log_of(const std::filesystem::path& to);
// Removes the log of a conversion, and a target that it has replaced. To call when the user knows that `to` is whole: whoever was not told
// types the command again, and the log says that nothing is missing.
void end_conversion(const std::filesystem::path& to);

// A failure to write is an Error (fault); it says that the same command goes on.
class ProgressLog {
 public:
  explicit ProgressLog(std::filesystem::path path) : path_(std::move(path)) {}

  struct Content {
    std::string begun;
    FinishedPieces finished;
  };
  std::optional<Content> read() const;  // nothing: no log, or not even a whole beginning
  // Replaces the log before, at once. begun: what the conversion is of.
  void start(std::string_view begun, const FinishedPieces& finished);
  // Call it when the piece is on the disk.
  void append(size_t number, const std::vector<uint64_t>& hashes);
  void sync();
  void remove() const { std::filesystem::remove(path_); }

 private:
  std::filesystem::path path_;
  std::optional<FrameWriter> log_;
};

// Fails (input): a target of old and new content would be wrong. of: the source. part: what the conversion has begun.
[[noreturn]] void refuse_changed_source(const std::string& of, const std::filesystem::path& part,
                                        const std::filesystem::path& progress);

}  // namespace maniple
