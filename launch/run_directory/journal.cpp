#include <kernels/support/check.hpp>
#include <launch/run_directory/journal.hpp>

#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace maniple {
namespace {

static_assert(std::endian::native == std::endian::little, "the journal is little-endian");

struct Header {
  uint64_t hash = 0;
  uint32_t length = 0;
  uint32_t kind = 0;
  uint64_t request = 0;
};
static_assert(sizeof(Header) == 24);

uint64_t hash_of(const Header& header, std::string_view line, uint64_t offset) {
  constexpr size_t covered = offsetof(Header, length);
  const uint64_t head =
      XXH64(reinterpret_cast<const char*>(&header) + covered, sizeof(header) - covered, offset);
  return XXH64(line.data(), line.size(), head);
}

}  // namespace

uint64_t JournalWriter::append(const JournalRecord& record) {
  const uint64_t offset = file_.size();
  Header header{0, static_cast<uint32_t>(record.line.size()), static_cast<uint32_t>(record.kind),
                record.request};
  require(header.length == record.line.size(), "a line of the journal is shorter than 4 GiB");
  header.hash = hash_of(header, record.line, offset);
  file_.append({reinterpret_cast<const char*>(&header), sizeof(header)});
  file_.append(record.line);
  return offset;
}

JournalReader::JournalReader(std::filesystem::path path)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "re"), &std::fclose) {
  struct stat status {};
  if (!file_ || ::fstat(::fileno(file_.get()), &status) != 0) fail_to_read();
  std::setvbuf(file_.get(), nullptr, _IOFBF, size_t{1} << 18);
  size_ = static_cast<uint64_t>(status.st_size);
}

std::optional<JournalReader::Entry> JournalReader::next() {
  Header header;
  if (size_ - offset_ < sizeof(header)) return std::nullopt;
  if (std::fread(&header, sizeof(header), 1, file_.get()) != 1) fail_to_read();
  if (header.length > size_ - offset_ - sizeof(header)) return std::nullopt;
  line_.resize(header.length);
  if (std::fread(line_.data(), 1, line_.size(), file_.get()) != line_.size()) fail_to_read();
  if (header.hash != hash_of(header, line_, offset_)) return std::nullopt;
  const Entry entry{offset_, {static_cast<JournalRecord::Kind>(header.kind), header.request, line_}};
  offset_ += sizeof(header) + line_.size();
  return entry;
}

// Not through the stream, which would refill its buffer after each jump.
std::string JournalReader::line_at(uint64_t offset) const {
  const int descriptor = ::fileno(file_.get());
  Header header;
  std::string line;
  bool whole = ::pread(descriptor, &header, sizeof(header), static_cast<off_t>(offset)) == sizeof(header);
  if (whole) {
    line.resize(header.length);
    const auto got =
        ::pread(descriptor, line.data(), line.size(), static_cast<off_t>(offset + sizeof(header)));
    whole = got == static_cast<ssize_t>(line.size()) && header.hash == hash_of(header, line, offset);
  }
  if (!whole) fail(ExitCode::fault, "{} was damaged while it was in use (byte {})", path_.string(), offset);
  return line;
}

void JournalReader::fail_to_read() const {
  fail(ExitCode::fault, "cannot read {}: {}", path_.string(), std::generic_category().message(errno));
}

const JournalReader& OpenJournals::at(const std::filesystem::path& path) {
  if (const auto found = open_.find(path.native()); found != open_.end()) return found->second;
  if (open_.size() == most) open_.clear();
  return open_.try_emplace(path.native(), path).first->second;
}

}  // namespace maniple
