#include <kernels/support/check.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/safetensors.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace maniple {

namespace {

constexpr uint64_t length_bytes = 8;
constexpr uint64_t max_header_bytes = 100'000'000;  // the format's own limit

uint64_t header_length(const InputFile& file) {
  if (file.size() < length_bytes)
    fail(ExitCode::input, "{} has {} bytes; a safetensors file has at least {}", file.path().string(),
         file.size(), length_bytes + 2);
  std::array<std::byte, length_bytes> bytes;
  file.read(0, bytes);
  uint64_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  const uint64_t limit = std::min(max_header_bytes, file.size() - length_bytes);
  if (length > limit)
    fail(ExitCode::input,
         "{}: the header claims {} bytes; at most {} are possible (is it a complete safetensors file?)",
         file.path().string(), length, limit);
  return length;
}

// A box of a row-major matrix, in bytes: count runs of the given length, a pitch apart.
struct StridedRuns {
  uint64_t begin = 0;  // offset of the first run in the file
  uint64_t count = 0;
  uint64_t length = 0;
  uint64_t pitch = 0;
};

// A vector is a matrix of one column, a scalar of one element.
StridedRuns runs_of_box(const StoredTensor& tensor, std::span<const int64_t> begin,
                        std::span<const int64_t> extent, uint64_t item_bytes) {
  const auto at = [](std::span<const int64_t> values, size_t dimension, int64_t otherwise) {
    return static_cast<uint64_t>(dimension < values.size() ? values[dimension] : otherwise);
  };
  const uint64_t pitch = at(tensor.info.shape, 1, 1) * item_bytes;
  const uint64_t first = tensor.offset + at(begin, 0, 0) * pitch + at(begin, 1, 0) * item_bytes;
  const uint64_t rows = at(extent, 0, 1), length = at(extent, 1, 1) * item_bytes;
  if (length == pitch) return {.begin = first, .count = 1, .length = rows * length, .pitch = rows * length};
  return {.begin = first, .count = rows, .length = length, .pitch = pitch};
}

// Reading over a gap this small costs less than another system call, above all on a parallel file system.
constexpr uint64_t max_gap_bytes = 64 << 10;
constexpr uint64_t chunk_bytes = 4 << 20;

void read_runs(const InputFile& file, const StridedRuns& runs, std::span<std::byte> out) {
  const uint64_t together =
      runs.pitch - runs.length > max_gap_bytes ? 1 : std::max<uint64_t>(1, chunk_bytes / runs.pitch);
  if (runs.count == 1 || together == 1) {
    for (uint64_t i = 0; i < runs.count; ++i)
      file.read(runs.begin + i * runs.pitch, out.subspan(i * runs.length, runs.length));
    return;
  }
  std::vector<std::byte> chunk(std::min(together, runs.count) * runs.pitch);
  for (uint64_t done = 0; done < runs.count; done += together) {
    const uint64_t count = std::min(together, runs.count - done);
    // From the first byte of the first run to the last byte of the last: never past the end of the tensor.
    file.read(runs.begin + done * runs.pitch, std::span(chunk).first((count - 1) * runs.pitch + runs.length));
    for (uint64_t i = 0; i < count; ++i)
      std::memcpy(&out[(done + i) * runs.length], &chunk[i * runs.pitch], runs.length);
  }
}

bool contains_box(std::span<const int64_t> shape, std::span<const int64_t> begin,
                  std::span<const int64_t> extent) {
  if (begin.size() != shape.size() || extent.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d)
    if (begin[d] < 0 || extent[d] < 0 || begin[d] > shape[d] || extent[d] > shape[d] - begin[d]) return false;
  return true;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : file_(std::move(path)) {
  std::string header(header_length(file_), '\0');
  file_.read(length_bytes, std::as_writable_bytes(std::span(header)));
  data_begin_ = length_bytes + header.size();
  tensors_ = parse_safetensors_header(header, file_.size() - data_begin_, file_.path().string());
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.info;
}

void SafetensorsFile::read(std::string_view name, std::span<const int64_t> begin,
                           std::span<const int64_t> extent, std::span<std::byte> out) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(ExitCode::input, "{} has no tensor {}", path().string(), shown(name));
  const TensorInfo& info = found->second.info;
  if (!info.dtype)
    fail(ExitCode::input, "{}: tensor {} is stored as {}; supported: F32, BF16, F16, I32, U8",
         path().string(), shown(name), shown(info.stored_type));
  if (info.shape.size() > 2 || !contains_box(info.shape, begin, extent))
    fail(ExitCode::input, "{}: tensor {} of shape {} was asked for the box at {} of size {}", path().string(),
         shown(name), info.shape, begin, extent);
  StridedRuns runs = runs_of_box(found->second, begin, extent, size_of(*info.dtype));
  require(out.size() == runs.count * runs.length, "a box is read into exactly its bytes");
  runs.begin += data_begin_;
  if (!out.empty()) read_runs(file_, runs, out);
}

}  // namespace maniple
