#include <kernels/support/check.hpp>
#include <kernels/support/counted.hpp>
#include <runtime/checkpoint/file_fingerprint.hpp>
#include <runtime/checkpoint/packed_index.hpp>
#include <runtime/checkpoint/safetensors.hpp>

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace maniple {
namespace {

constexpr uint64_t large_file = uint64_t{64} << 20;

uint64_t hash_of(const InputFile& file, uint64_t offset, uint64_t size, uint64_t seed) {
  std::vector<std::byte> bytes(std::min(size, file.size() - offset));
  file.read(offset, bytes);
  return XXH64(bytes.data(), bytes.size(), seed);
}

}  // namespace

uint64_t header_bytes(const InputFile& file) {
  uint64_t length = 0;
  if (file.size() < sizeof length) return file.size();
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length == std::bit_cast<uint64_t>(packed_magic)) return std::min(user_block_bytes, file.size());
  return std::min({length, file.size() - sizeof length, max_header_bytes}) + sizeof length;
}

FileFingerprint fingerprint_of(const InputFile& file) {
  const uint64_t header = header_bytes(file);
  FileFingerprint print{file.size(), hash_of(file, 0, header, 0)};
  const uint64_t count = file.size() < large_file ? 1 : 4, bytes = file.size() < large_file ? 4096 : 65536;
  for (uint64_t i = 1; i <= count; ++i)
    print.samples = hash_of(file, header + (file.size() - header) / (count + 1) * i, bytes, print.samples);
  return print;
}

InputFile open_same(const IndexedFile& file) {
  InputFile mine(file.path);
  const FileFingerprint print = fingerprint_of(mine);
  if (print == file.print) return mine;
  const auto difference = [&]() -> std::string {
    if (print.size != file.print.size)
      return fmt::format("{}, there {}", counted(print.size, "byte"), file.print.size);
    return print.header != file.print.header ? "other tensors" : "other values";
  };
  throw Error(ExitCode::input,
              fmt::format("{} is not the file that rank 0 read: {}", file.path.string(), difference()),
              "every rank reads a part of the weights, so that the text would be wrong",
              "copy the model to all nodes again, or give a directory that they share");
}

}  // namespace maniple
