#include <gtest/gtest.h>
#include <runtime/checkpoint/input_file.hpp>

#include "checkpoint_testing.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

namespace maniple {
namespace {

size_t pages_in_memory(const std::filesystem::path& path, size_t bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  std::vector<unsigned char> pages(bytes / static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(::mincore(mapped, bytes, pages.data()), 0);
  ::munmap(mapped, bytes);
  ::close(file);
  return static_cast<size_t>(std::ranges::count_if(pages, [](unsigned char page) { return page & 1; }));
}

// A file system in memory keeps its pages in any case: then only the bytes are compared.
TEST(InputFile, ForgetsWhatItHasReadAndReadsItAgain) {
  const TempDirectory directory;
  const std::string text(size_t{1} << 20, 'x');
  write_file(directory / "file", text);
  const int written = ::open((directory / "file").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::fsync(written), 0);
  ::close(written);
  const InputFile file(directory / "file");
  std::string read(text.size(), '\0');
  const auto bytes = std::as_writable_bytes(std::span(read));
  file.read(0, bytes);
  const size_t before = pages_in_memory(directory / "file", text.size());
  file.forget(0, text.size() / 2);
  const size_t after = pages_in_memory(directory / "file", text.size());
  EXPECT_TRUE(after == before || after <= before * 3 / 4) << before << ", then " << after;
  file.read(0, bytes);
  EXPECT_EQ(read, text);
}

}  // namespace
}  // namespace maniple
