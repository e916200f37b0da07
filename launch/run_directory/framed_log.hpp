// An append-only file of frames, each with its length and a checksum. What was written before a crash can be
// read up to the last whole frame; a torn or damaged frame is the end.
//
// A frame is, little-endian: XXH64 (8 bytes) of all that follows, seeded with the frame's offset in the file;
// the length of its bytes (4), the kind (4), the tag (8), the bytes. Kind and tag are the writer's.
#pragma once

#include <launch/run_directory/durable_file.hpp>

#include <cstdio>
#include <memory>

namespace maniple {

struct Frame {
  uint32_t kind = 0;
  uint64_t tag = 0;
  std::string_view bytes = {};
};

class FrameWriter {
 public:
  // Fails if the path exists.
  explicit FrameWriter(std::filesystem::path path) : file_(std::move(path)) {}

  uint64_t append(const Frame& frame);  // its offset in the file
  uint64_t size() const { return file_.size(); }
  void flush() { file_.flush(); }  // see DurableFile
  void sync() { file_.sync(); }
  void lock() { file_.lock(); }

 private:
  DurableFile file_;
};

// Fails (fault) if the file cannot be read.
class FrameReader {
 public:
  explicit FrameReader(std::filesystem::path path);

  struct Entry {
    uint64_t offset = 0;
    Frame frame;  // its bytes live until the next call
  };
  std::optional<Entry> next();
  uint64_t dropped_bytes() const { return size_ - offset_; }  // after the last whole frame; valid at the end

  // The bytes of any frame, by its offset from next() or append().
  std::string bytes_at(uint64_t offset) const;

 private:
  [[noreturn]] void fail_to_read() const;

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  uint64_t size_ = 0;    // when it was opened
  uint64_t offset_ = 0;  // of the next frame
  std::string bytes_;
};

}  // namespace maniple
