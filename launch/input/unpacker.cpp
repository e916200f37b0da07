#include <kernels/support/check.hpp>
#include <launch/input/unpacker.hpp>

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

namespace maniple {
namespace {

constexpr unsigned chunk_bytes = 1U << 18;

[[noreturn]] void fail_to_unpack(const std::string& name, std::string_view reason) {
  fail(ExitCode::input, "cannot unpack {}: {}", name, reason);
}

// zlib passes other files through unchanged.
class Gzip : public Unpacker {
 public:
  Gzip(int descriptor, const std::string& name) : name_(name) {
    ::lseek(descriptor, 0, SEEK_SET);
    stream_.reset(gzdopen(::dup(descriptor), "rb"));
    require(stream_ != nullptr, "zlib has memory for a stream");
    gzbuffer(stream_.get(), chunk_bytes);
  }

  size_t read(std::span<char> part) override {
    const int got = gzread(stream_.get(), part.data(), static_cast<unsigned>(part.size()));
    int code = Z_OK;
    const char* message = gzerror(stream_.get(), &code);
    if (code == Z_ERRNO) fail_to("read", name_);
    if (code < 0) fail_to_unpack(name_, message);
    return static_cast<size_t>(std::max(got, 0));
  }

 private:
  std::string name_;
  std::unique_ptr<gzFile_s, decltype(&gzclose)> stream_{nullptr, &gzclose};
};

class Zstandard : public Unpacker {
 public:
  Zstandard(int descriptor, std::string name)
      : descriptor_(descriptor), name_(std::move(name)), packed_(chunk_bytes) {
    require(stream_ != nullptr, "libzstd has memory for a stream");
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax,
                           ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }

  size_t read(std::span<char> part) override {
    ZSTD_outBuffer out{part.data(), part.size(), 0};
    while (out.pos < out.size) {
      if (in_.pos == in_.size) refill();
      const bool at_end = in_.size == 0;
      if (at_end && frame_left_ == 0) break;
      const size_t before = out.pos;
      frame_left_ = ZSTD_decompressStream(stream_.get(), &out, &in_);
      if (ZSTD_isError(frame_left_) != 0) fail_to_unpack(name_, ZSTD_getErrorName(frame_left_));
      if (at_end && out.pos == before) fail_to_unpack(name_, "unexpected end of file");
    }
    return out.pos;
  }

 private:
  void refill() {
    const size_t got = read_at(descriptor_, offset_, packed_, name_);
    offset_ += static_cast<off_t>(got);
    in_ = {packed_.data(), got, 0};
  }

  int descriptor_;
  std::string name_;
  std::vector<char> packed_;
  off_t offset_ = 0;
  ZSTD_inBuffer in_{};
  size_t frame_left_ = 0;  // bytes that libzstd still expects; 0 between frames
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> stream_{ZSTD_createDCtx(), &ZSTD_freeDCtx};
};

// Parallel packers begin with a skippable frame.
bool is_zstandard(int descriptor, const std::string& name) {
  uint32_t magic = 0;
  std::vector<char> head(sizeof(magic));
  if (read_at(descriptor, 0, head, name) < head.size()) return false;
  std::memcpy(&magic, head.data(), head.size());
  return magic == ZSTD_MAGICNUMBER || (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
}

}  // namespace

void fail_to(const char* act, const std::string& name) {
  fail(ExitCode::input, "cannot {} {}: {}", act, name, std::generic_category().message(errno));
}

size_t read_at(int descriptor, off_t offset, std::span<char> part, const std::string& name) {
  const ssize_t got = ::pread(descriptor, part.data(), part.size(), offset);
  if (got < 0) fail_to("read", name);
  return static_cast<size_t>(got);
}

std::unique_ptr<Unpacker> open_unpacker(int descriptor, const std::string& name) {
  if (is_zstandard(descriptor, name)) return std::make_unique<Zstandard>(descriptor, name);
  return std::make_unique<Gzip>(descriptor, name);
}

}  // namespace maniple
