#include <kernels/support/check.hpp>
#include <launch/input/unpacker.hpp>

#include <fmt/format.h>

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace maniple {
namespace {

constexpr unsigned packed_bytes = 1U << 18;

[[noreturn]] void fail_to_unpack(const std::string& name, std::string_view reason) {
  fail(ExitCode::input, "cannot unpack {}: {}", name, reason);
}

class Plain : public Unpacker {
 public:
  Plain(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {}

  size_t read(std::span<char> part) override {
    size_t all = 0;
    while (const size_t got = read_at(descriptor_, offset_, part.subspan(all), name_)) {
      all += got;
      offset_ += static_cast<off_t>(got);
    }
    return all;
  }

 private:
  int descriptor_;
  std::string name_;
  off_t offset_ = 0;
};

// Members one after the other, as `cat a.gz b.gz` makes them. zlib's own reader of files drops what follows the last one.
class Gzip : public Unpacker {
 public:
  Gzip(int descriptor, std::string name)
      : descriptor_(descriptor), name_(std::move(name)), packed_(packed_bytes) {
    constexpr int gzip_only = 16 + MAX_WBITS;
    require(inflateInit2(&stream_, gzip_only) == Z_OK, "zlib has memory for a stream");
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  ~Gzip() override { inflateEnd(&stream_); }

  size_t read(std::span<char> part) override {
    stream_.next_out = reinterpret_cast<Bytef*>(part.data());
    stream_.avail_out = static_cast<uInt>(part.size());
    while (stream_.avail_out > 0) {
      if (stream_.avail_in == 0) refill();
      if (stream_.avail_in == 0 && in_member_) fail_to_unpack(name_, "unexpected end of file");
      if (stream_.avail_in == 0) break;
      in_member_ ? unpack() : begin_member();
    }
    return part.size() - stream_.avail_out;
  }

 private:
  off_t position() const { return offset_ - static_cast<off_t>(stream_.avail_in); }

  void refill() {
    stream_.avail_in = static_cast<uInt>(read_at(descriptor_, offset_, packed_, name_));
    stream_.next_in = reinterpret_cast<Bytef*>(packed_.data());
    offset_ += stream_.avail_in;
  }

  // Tapes fill their last block with zeros.
  void begin_member() {
    for (; begin_ && stream_.avail_in > 0 && *stream_.next_in == 0; --stream_.avail_in) ++stream_.next_in;
    if (stream_.avail_in == 0) return;
    is_first_ = !begin_;
    begin_ = position();
    inflateReset(&stream_);
    in_member_ = true;
  }

  void unpack() {
    const int code = inflate(&stream_, Z_NO_FLUSH);
    in_member_ = code != Z_STREAM_END;
    if (code >= Z_OK || code == Z_BUF_ERROR) return;
    if (!is_first_ && stream_.msg == std::string_view("incorrect header check"))
      fail_to_unpack(name_,
                     fmt::format("what follows its packed lines, from byte {} on, is not gzip", *begin_));
    fail_to_unpack(name_, stream_.msg ? stream_.msg : zError(code));
  }

  int descriptor_;
  std::string name_;
  std::vector<char> packed_;
  z_stream stream_{};
  off_t offset_ = 0;            // of what is read next
  std::optional<off_t> begin_;  // of the latest member
  bool is_first_ = true, in_member_ = false;
};

class Zstandard : public Unpacker {
 public:
  Zstandard(int descriptor, std::string name)
      : descriptor_(descriptor), name_(std::move(name)), packed_(packed_bytes) {
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

// Parallel packers of Zstandard begin with a skippable frame.
bool is_zstandard(uint32_t magic) {
  return magic == ZSTD_MAGICNUMBER || (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
}
bool is_gzip(uint32_t magic) { return (magic & 0xFFFF) == 0x8B1F; }

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
  std::array<char, sizeof(uint32_t)> head{};
  const size_t got = read_at(descriptor, 0, head, name);
  const auto magic = std::bit_cast<uint32_t>(head);
  if (got == head.size() && is_zstandard(magic)) return std::make_unique<Zstandard>(descriptor, name);
  if (is_gzip(magic)) return std::make_unique<Gzip>(descriptor, name);
  return std::make_unique<Plain>(descriptor, name);
}

}  // namespace maniple
