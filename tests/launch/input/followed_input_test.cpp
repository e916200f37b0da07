#include <kernels/support/check.hpp>
#include <launch/input/followed_input.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <support/temp_directory.hpp>

#include <tuple>

namespace maniple {
namespace {

class FollowedInputTest : public ::testing::Test {
 protected:
  FollowedInputTest() : fifo_(directory_.path() / "fifo") {
    EXPECT_EQ(::mkfifo(fifo_.c_str(), 0600), 0);
    input_.emplace(fifo_);
  }
  void open_writer() { writer_.reset(::open(fifo_.c_str(), O_WRONLY | O_CLOEXEC)); }
  void write(const std::string& text) {
    ASSERT_EQ(::write(writer_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // "2:text"; "-" without a line, "end" after the last one.
  std::string next() {
    const std::optional<LineReader::Line> line = input_->next();
    if (!line) return "end";
    return line->text.empty() ? "-" : fmt::format("{}:{}", line->number, line->text);
  }

  TempDirectory directory_;
  std::string fifo_;
  std::optional<FollowedInput> input_;
  FileDescriptor writer_;
};

TEST_F(FollowedInputTest, GivesEachLineWhenItHasComeWholeAndTheRestAtTheEnd) {
  EXPECT_EQ(next(), "-") << "nobody has written yet";
  open_writer();
  EXPECT_EQ(next(), "-");
  write("one\r\n\n  \ntwo\nthr");
  EXPECT_EQ(next(), "1:one");
  EXPECT_EQ(next(), "4:two");
  EXPECT_EQ(next(), "-");
  write("ee");
  EXPECT_EQ(next(), "-");
  write("\nfour");
  EXPECT_EQ(next(), "5:three");
  writer_.reset();
  EXPECT_EQ(next(), "6:four");
  EXPECT_EQ(next(), "end");
  EXPECT_EQ(next(), "end");
}

TEST_F(FollowedInputTest, TakesLinesOfAnyLength) {
  open_writer();
  std::string expected, got;
  ::fcntl(writer_.get(), F_SETPIPE_SZ, 1 << 20);
  for (size_t length = 1; length < 400'000; length = length * 3 + 1) {
    write(std::string(length, 'x') + '\n');
    expected += fmt::format("{} ", length);
  }
  writer_.reset();
  while (const std::optional<LineReader::Line> line = input_->next())
    if (!line->text.empty()) got += fmt::format("{} ", line->text.size());
  EXPECT_EQ(got, expected);
}

TEST(FollowedInput, RefusesFilesAndDirectories) {
  const TempDirectory directory;
  const std::string file = directory.path() / "file";
  FileDescriptor(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  for (const std::string& path : {file, directory.path().string()}) {
    try {
      const FollowedInput input(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  }
  EXPECT_THROW(FollowedInput(file + "x"), Error);
}

}  // namespace
}  // namespace maniple
