#include <kernels/support/check.hpp>
#include <launch/results.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

namespace maniple {
namespace {

class OutputPath {
 public:
  OutputPath() : path_(testing::TempDir() + "maniple_results_XXXXXX") { ::close(::mkstemp(path_.data())); }
  ~OutputPath() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }
  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

Completion completion(RequestId id, const std::string& text) {
  Completion done;
  done.id = id;
  done.text = text;
  done.tokens = {3, 4};
  done.reason = FinishReason::stop;
  done.prompt_tokens = 5;
  return done;
}

TEST(ResultLine, IsTheseBytes) {
  EXPECT_EQ(
      result_line("\"a\"", completion(0, "He said \"ü\"\n"), true),
      R"({"id":"a","text":"He said \"ü\"\n","tokens":[3,4],"finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":2}})");
}

TEST(ResultLine, LeavesTheTextOutWithoutATokenizer) {
  Completion done = completion(0, "");
  done.reason = FinishReason::length;
  EXPECT_EQ(
      result_line("7", done, false),
      R"({"id":7,"tokens":[3,4],"finish_reason":"length","usage":{"prompt_tokens":5,"completion_tokens":2}})");
}

TEST(ResultLine, WritesTheShortestNumbersThatReadBackAsTheSameFloat) {
  Completion done = completion(0, "");
  done.scores = {
      {-0.1F, {}}, {-1.0F, {{4, -1.0F}, {9, -1.25e-7F}}}, {-std::numeric_limits<float>::infinity(), {}}};
  EXPECT_EQ(
      result_line("7", done, false),
      R"({"id":7,"tokens":[3,4],"finish_reason":"stop","logprobs":[{"logprob":-0.1},)"
      R"({"logprob":-1,"top":[{"token":4,"logprob":-1},{"token":9,"logprob":-1.25e-07}]},{"logprob":null}],)"
      R"("usage":{"prompt_tokens":5,"completion_tokens":2}})");
}

TEST(ResultLine, OfARefusedRequestSaysWhy) {
  Completion refused;
  refused.error = "the prompt is empty";
  EXPECT_EQ(result_line("7", refused, true), R"({"id":7,"error":"the prompt is empty"})");
}

TEST(ResultWriter, HoldsWhatEndsBeforeItsTurn) {
  const OutputPath out;
  OutputFile file(out.path());
  ResultWriter results(file, {.json = false, .with_text = true});
  for (RequestId id = 0; id < 4; ++id) results.expect(id, std::to_string(id));
  results.finished(completion(2, "two"));
  EXPECT_EQ(out.content(), "");
  results.finished(completion(0, "zero"));
  EXPECT_EQ(out.content(), "zero\n");
  results.finished(completion(1, "one"));
  EXPECT_EQ(out.content(), "zero\none\ntwo\n");
  EXPECT_EQ(results.done(), 3U);
}

TEST(ResultWriter, AfterAnInterruptionWritesWhatWasHeld) {
  const OutputPath out;
  OutputFile file(out.path());
  ResultWriter results(file, {.json = false, .with_text = true});
  for (RequestId id = 0; id < 4; ++id) results.expect(id, std::to_string(id));
  results.finished(completion(3, "three"));
  results.finished(completion(1, "one"));
  results.write_held();
  file.close();
  EXPECT_EQ(out.content(), "one\nthree\n");
}

TEST(ResultWriter, CountsFailuresAndWritesThemInTheirTurn) {
  const OutputPath out;
  OutputFile file(out.path());
  ResultWriter results(file, {});
  results.expect(0, "\"a\"");
  results.expect(1, "\"b\"");
  results.refuse(1, "no");
  results.finished(completion(0, "x"));
  EXPECT_EQ(results.done(), 2U);
  EXPECT_EQ(results.failed(), 1U);
  EXPECT_TRUE(out.content().ends_with("\n{\"id\":\"b\",\"error\":\"no\"}\n")) << out.content();
}

TEST(ResultWriter, ARequestThatEndsTwiceIsABug) {
  const OutputPath out;
  OutputFile file(out.path());
  ResultWriter results(file, {});
  results.expect(0, "0");
  results.finished(completion(0, "x"));
  EXPECT_THROW(results.finished(completion(0, "x")), Error);
}

TEST(OutputFile, KeepsTheOldContentUntilItIsCleared) {
  const OutputPath out;
  std::ofstream(out.path()) << "precious and long";
  OutputFile file(out.path());
  EXPECT_EQ(out.content(), "precious and long");
  file.clear();
  file.write("new");
  EXPECT_EQ(out.content(), "new");
}

TEST(OutputFile, ThatCannotBeOpenedIsRefused) {
  try {
    OutputFile file("/nowhere/results.jsonl");
    FAIL() << "was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    EXPECT_NE(std::string(error.what()).find("/nowhere/results.jsonl"), std::string::npos);
  }
}

TEST(OutputFile, OnAFullDiskFails) {
  OutputFile file("/dev/full");
  file.clear();
  try {
    file.write("x");
    FAIL() << "was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::fault);
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
  }
}

TEST(OutputFile, KnowsTheFileThatItWouldOverwrite) {
  const OutputPath in, out;
  const LineReader reader(in.path());
  EXPECT_TRUE(OutputFile(in.path()).is_same_file(reader.descriptor()));
  EXPECT_FALSE(OutputFile(out.path()).is_same_file(reader.descriptor()));
}

}  // namespace
}  // namespace maniple
