#include <kernels/support/check.hpp>
#include <launch/run_directory/framed_log.hpp>

#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <bit>
#include <cerrno>
#include <system_error>

namespace maniple {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

struct Header {
  uint64_t hash = 0;
  uint32_t length = 0;
  uint32_t kind = 0;
  uint64_t tag = 0;
};
static_assert(sizeof(Header) == 24);

uint64_t hash_of(const Header& header, std::string_view bytes, uint64_t offset) {
  constexpr size_t covered = offsetof(Header, length);
  const uint64_t head =
      XXH64(reinterpret_cast<const char*>(&header) + covered, sizeof(header) - covered, offset);
  return XXH64(bytes.data(), bytes.size(), head);
}

}  // namespace

uint64_t FrameWriter::append(const Frame& frame) {
  const uint64_t offset = file_.size();
  Header header{0, static_cast<uint32_t>(frame.bytes.size()), frame.kind, frame.tag};
  require(header.length == frame.bytes.size(), "a frame is shorter than 4 GiB");
  header.hash = hash_of(header, frame.bytes, offset);
  file_.append({reinterpret_cast<const char*>(&header), sizeof(header)});
  file_.append(frame.bytes);
  return offset;
}

FrameReader::FrameReader(std::filesystem::path path)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "re"), &std::fclose) {
  struct stat status {};
  if (!file_ || ::fstat(::fileno(file_.get()), &status) != 0) fail_to_read();
  std::setvbuf(file_.get(), nullptr, _IOFBF, size_t{1} << 18);
  size_ = static_cast<uint64_t>(status.st_size);
}

std::optional<FrameReader::Entry> FrameReader::next() {
  Header header;
  if (size_ - offset_ < sizeof(header)) return std::nullopt;
  if (std::fread(&header, sizeof(header), 1, file_.get()) != 1) fail_to_read();
  if (header.length > size_ - offset_ - sizeof(header)) return std::nullopt;
  bytes_.resize(header.length);
  if (std::fread(bytes_.data(), 1, bytes_.size(), file_.get()) != bytes_.size()) fail_to_read();
  if (header.hash != hash_of(header, bytes_, offset_)) return std::nullopt;
  const Entry entry{offset_, {header.kind, header.tag, bytes_}};
  offset_ += sizeof(header) + bytes_.size();
  return entry;
}

// Not through the stream, which would refill its buffer after each jump.
std::string FrameReader::bytes_at(uint64_t offset) const {
  const int descriptor = ::fileno(file_.get());
  Header header;
  std::string bytes;
  bool whole = ::pread(descriptor, &header, sizeof(header), static_cast<off_t>(offset)) == sizeof(header);
  if (whole) {
    bytes.resize(header.length);
    const auto got =
        ::pread(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset + sizeof(header)));
    whole = got == static_cast<ssize_t>(bytes.size()) && header.hash == hash_of(header, bytes, offset);
  }
  if (!whole) fail(ExitCode::fault, "{} was damaged while it was in use (byte {})", path_.string(), offset);
  return bytes;
}

void FrameReader::fail_to_read() const {
  fail(ExitCode::fault, "cannot read {}: {}", path_.string(), std::generic_category().message(errno));
}

}  // namespace maniple
