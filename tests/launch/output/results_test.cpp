#include <kernels/support/check.hpp>
#include <launch/output/report.hpp>
#include <launch/output/result_lines.hpp>
#include <launch/output/results.hpp>
#include <runtime/shared_model.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

namespace maniple {
namespace {

class OutputPath {
 public:
  OutputPath() : path_(::testing::TempDir() + "maniple_results_XXXXXX") { ::close(::mkstemp(path_.data())); }
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

FinishedRequest completion(RequestId id, const std::string& text) {
  FinishedRequest done;
  done.id = id;
  Answer& answer = done.answers.emplace_back();
  answer.text = text;
  answer.tokens = {3, 4};
  answer.reason = FinishReason::stop;
  done.prompt_tokens = 5;
  return done;
}

std::string plain_line(const std::string& id, const FinishedRequest& done) {
  return result_line({.id = id}, done, nullptr);
}

TEST(ResultLine, IsTheseBytes) {
  EXPECT_EQ(
      plain_line("\"a\"", completion(0, "He said \"ü\"\n")),
      R"({"id":"a","text":"He said \"ü\"\n","tokens":[3,4],"finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":2}})");
}

TEST(ResultLine, LeavesTheTextOutWithoutATokenizer) {
  FinishedRequest done = completion(0, "");
  done.answers[0].text.reset();
  done.answers[0].reason = FinishReason::length;
  EXPECT_EQ(
      plain_line("7", done),
      R"({"id":7,"tokens":[3,4],"finish_reason":"length","usage":{"prompt_tokens":5,"completion_tokens":2}})");
}

TEST(ResultLine, WritesTheShortestNumbersThatReadBackAsTheSameFloat) {
  FinishedRequest done = completion(0, "");
  Answer& answer = done.answers[0];
  answer.text.reset();
  answer.tokens = {3, 4, 5};
  answer.scores = {
      {-0.1F, {}}, {-1.0F, {{4, -1.0F}, {9, -1.25e-7F}}}, {-std::numeric_limits<float>::infinity(), {}}};
  EXPECT_EQ(
      plain_line("7", done),
      R"({"id":7,"tokens":[3,4,5],"finish_reason":"stop","logprobs":[{"logprob":-0.1},)"
      R"({"logprob":-1,"top":[{"token":4,"logprob":-1},{"token":9,"logprob":-1.25e-07}]},{"logprob":null}],)"
      R"("usage":{"prompt_tokens":5,"completion_tokens":3}})");
}

FinishedRequest with_scores_of_the_prompt(FinishedRequest done) {
  done.prompt = {5, 6, 7};
  for (const float logprob : {-0.1F, -0.2F}) {
    PromptScore& score = done.prompt_scores.emplace_back();
    score.logprob = logprob;
    score.greedy = true;
  }
  done.prompt_scores[1].alternatives = {{8, -0.05F}};
  return done;
}

TEST(ResultLine, OfSeveralAnswersHasAChoiceForEach) {
  FinishedRequest done = completion(0, "one");
  done.answers.push_back(completion(0, "two").answers[0]);
  done.answers[1].reasoning = "why";
  done.answers[1].tokens = {3};
  done.answers[1].reason = FinishReason::length;
  EXPECT_EQ(
      result_line({.id = "7", .seed = 11}, done, nullptr),
      fmt::format(
          R"({{"id":7,"choices":[{{"index":0,"seed":11,"text":"one","tokens":[3,4],"finish_reason":"stop"}},)"
          R"({{"index":1,"seed":{},"reasoning":"why","text":"two","tokens":[3],"finish_reason":"length"}}],)"
          R"("usage":{{"prompt_tokens":5,"completion_tokens":3}}}})",
          answer_seed(11, 1)));
}

TEST(ResultLine, ListsTheScoresOfThePromptWhereTheLineAsksForThem) {
  FinishedRequest done = with_scores_of_the_prompt(completion(0, ""));
  done.answers[0] = {};
  const std::string rest =
      R"("tokens":[],"finish_reason":"length","usage":{"prompt_tokens":5,"completion_tokens":0}})";
  EXPECT_EQ(result_line({.id = "7"}, done, nullptr), R"({"id":7,)" + rest);
  RequestLabel label{.id = "7"};
  label.prompt_logprobs = 1;
  EXPECT_EQ(result_line(label, done, nullptr),
            R"({"id":7,"prompt_logprobs":[null,{"token":6,"logprob":-0.1},{"token":7,"logprob":-0.2,)"
            R"("top":[{"token":8,"logprob":-0.05}]}],)" +
                rest);
}

TEST(ResultLine, OfAContinuationHasItsSumItsTokensAndWhetherItIsTheGreedyOne) {
  FinishedRequest done = with_scores_of_the_prompt(completion(0, "x"));
  RequestLabel label{.id = "7"};
  label.continuation = true;
  const auto scored = [&] {
    return nlohmann::json::parse(result_line(label, done, nullptr))["continuation"];
  };
  EXPECT_TRUE(
      result_line(label, done, nullptr).starts_with(R"({"id":7,"continuation":{"logprob":-0.30000000)"))
      << result_line(label, done, nullptr);
  EXPECT_EQ(scored()["logprob"], double{-0.1F} + double{-0.2F});
  EXPECT_EQ(scored()["tokens"], 2);
  EXPECT_EQ(scored()["greedy"], true);
  done.prompt_scores[0].greedy = false;
  EXPECT_EQ(scored()["greedy"], false);
  done.prompt_scores[0].logprob = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(scored()["logprob"].is_null());
}

TEST(ResultLine, SpellsTheTokensThatHaveLogProbabilities) {
  const Tokenizer tokenizer = read_tokenizer(ModelFiles(MANIPLE_TEST_DATA "/models/shakespeare"));
  const int32_t the = tokenizer.encode(" the", false).at(0);
  FinishedRequest done = completion(0, "");
  done.answers[0].tokens = {the, 2047};
  done.answers[0].scores = {{-0.5F, {}}, {-1, {{2047, -1}, {the, -2}}}};
  const auto line = nlohmann::json::parse(result_line({.id = "7"}, done, &tokenizer));
  EXPECT_EQ(line["logprobs"][0].dump(), fmt::format(R"({{"logprob":-0.5,"text":" the","token":{}}})", the));
  EXPECT_EQ(line["logprobs"][1]["text"], "<|im_end|>");
  EXPECT_EQ(line["logprobs"][1]["top"][1].dump(),
            fmt::format(R"({{"logprob":-2,"text":" the","token":{}}})", the));
}

TEST(ResultLine, OfARefusedRequestSaysWhy) {
  FinishedRequest refused;
  refused.error = "the prompt is empty";
  EXPECT_EQ(plain_line("7", refused), R"({"id":7,"error":"the prompt is empty"})");
}

TEST(ResultLine, HasTheThoughtBeforeTheText) {
  FinishedRequest done = completion(0, "4");
  done.answers[0].reasoning = "Add.";
  EXPECT_TRUE(plain_line("7", done).starts_with(R"({"id":7,"reasoning":"Add.","text":"4","tokens":[3,4])"));
  done.answers[0].reasoning = "";
  EXPECT_TRUE(plain_line("7", done).starts_with(R"({"id":7,"reasoning":"","text":"4")"));
  done.answers[0].calls = {{"functions.f", "{}"}};
  EXPECT_TRUE(plain_line("7", done).starts_with(
      R"({"id":7,"reasoning":"","text":"4","tool_calls":[{"id":"call_0","type":"function","function":{"name":"f","arguments":"{}"}}],"tokens":[3,4],"finish_reason":"stop")"));
}

TEST(OrderedFile, HoldsWhatEndsBeforeItsTurn) {
  const OutputPath out;
  OutputFile file(out.path());
  OrderedFile ordered(file, {});
  ordered.finished(2, false, "two\n");
  EXPECT_EQ(out.content(), "");
  ordered.finished(0, true, "zero\n");
  EXPECT_EQ(out.content(), "zero\n");
  ordered.finished(1, false, "one\n");
  EXPECT_EQ(out.content(), "zero\none\ntwo\n");
}

TEST(OrderedFile, KnowsTheTurnsOfAShard) {
  const OutputPath out;
  OutputFile file(out.path());
  OrderedFile ordered(file, {1, 3});
  ordered.finished(4, false, "four\n");
  EXPECT_EQ(out.content(), "");
  ordered.finished(1, false, "one\n");
  EXPECT_EQ(out.content(), "one\nfour\n");
}

TEST(OrderedFile, AfterAnInterruptionWritesWhatWasHeld) {
  const OutputPath out;
  OutputFile file(out.path());
  OrderedFile ordered(file, {});
  ordered.finished(3, false, "three\n");
  ordered.finished(1, false, "one\n");
  ordered.write_held();
  file.close();
  EXPECT_EQ(out.content(), "one\nthree\n");
}

TEST(OrderedFile, HasNoRoomWhileItHoldsTooMuch) {
  const OutputPath out;
  OutputFile file(out.path());
  OrderedFile ordered(file, {});
  ordered.finished(1, false, std::string(size_t{65} << 20, 'x'));
  EXPECT_FALSE(ordered.has_room());
  ordered.finished(0, false, "x");
  EXPECT_TRUE(ordered.has_room());
}

struct Kept : ResultStore {
  void started(RequestId request, bool alone) override { starts.emplace_back(request, alone); }
  void finished(RequestId request, bool failed, std::string line) override {
    if (request == 99) throw Error(ExitCode::fault, "the disk is full");
    lines[request] = (failed ? "failed " : "") + line;
  }
  std::vector<std::pair<RequestId, bool>> starts;
  std::map<RequestId, std::string> lines;
};

TEST(Results, AreRenderedAndStoredInTheOrderInWhichTheyCame) {
  Kept kept;
  Results results(kept, nullptr, false);
  results.expect(5, {.id = "\"a\""});
  results.expect(6, {.id = "\"b\""});
  EXPECT_EQ(results.unfinished(), 2U);
  results.started(5);
  results.start_alone(6);
  EXPECT_EQ(kept.starts, (std::vector<std::pair<RequestId, bool>>{{5, false}, {6, true}}));
  results.refuse(6, "no");
  results.finished(completion(5, "x"));
  results.drain();
  EXPECT_EQ(kept.lines[6], "failed {\"id\":\"b\",\"error\":\"no\"}\n");
  EXPECT_TRUE(kept.lines[5].starts_with("{\"id\":\"a\",\"text\":\"x\"")) << kept.lines[5];
  EXPECT_EQ(results.done(), 2U);
  EXPECT_EQ(results.failed(), 1U);
  EXPECT_EQ(results.unfinished(), 0U);
  EXPECT_THROW(results.finished(completion(5, "x")), Error) << "a request ends once";
}

// The tokens stay those of the whole output.
TEST(Results, HaveTheThoughtApartOfRequestsThatAskForIt) {
  std::string json = ModelFiles(MANIPLE_TEST_DATA "/models/shakespeare").text("tokenizer.json");
  for (const auto& [old, mark] :
       {std::pair<std::string, std::string>{"<|endoftext|>", "<think>"}, {"<|im_start|>", "</think>"}})
    json.replace(json.find(old), old.size(), mark);
  const Tokenizer tokenizer = Tokenizer::from_json(json);
  const int32_t end = *tokenizer.token_id("<|im_end|>");
  const std::vector<int32_t> thought = tokenizer.encode("<think>Add.</think>Four", false);
  const auto stored = [&](const std::vector<int32_t>& prompt, std::optional<std::string> text, bool apart) {
    Kept kept;
    Results results(kept, &tokenizer, false);
    RequestLabel label{.id = "1"};
    if (apart) label.reasoning = Reasoning::of("auto", tokenizer, prompt);
    results.expect(1, label);
    FinishedRequest done;
    done.id = 1;
    Answer& answer = done.answers.emplace_back();
    answer.tokens = thought;
    if (!text) answer.tokens.push_back(end);
    answer.text = std::move(text);
    answer.reason = FinishReason::stop;
    results.finished(std::move(done));
    results.drain();
    return nlohmann::json::parse(kept.lines[1]);
  };
  const nlohmann::json apart = stored({}, {}, true), whole = stored({}, {}, false);
  EXPECT_EQ(apart["reasoning"], "Add.");
  EXPECT_EQ(apart["text"], "Four");
  EXPECT_EQ(apart["tokens"].size(), thought.size() + 1);
  EXPECT_EQ(whole["tokens"], apart["tokens"]);
  EXPECT_FALSE(whole.contains("reasoning"));
  EXPECT_EQ(stored({}, "Add.F", true)["text"], "F")
      << "before a stop string in the answer; special marks say nothing";
  EXPECT_EQ(stored({}, "Ad", true)["reasoning"], "Ad") << "before a stop string in the thought";
}

TEST(Results, OfHarmonyLeaveOutEachOfItsThreeEnds) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(ModelFiles(MANIPLE_TEST_DATA "/tokenizers/harmony-style").text("tokenizer.json"));
  const auto reasoning = Reasoning::of("auto", tokenizer, tokenizer.encode("<|start|>assistant", false));
  const std::string thought = "<|channel|>analysis<|message|>Add.<|end|><|start|>assistant";
  const auto answer_to = [&](const std::string& output) {
    Answer answer;
    answer.tokens = tokenizer.encode(thought + output, false);
    answer.reason = FinishReason::stop;
    add_text(tokenizer, answer, &*reasoning);
    EXPECT_EQ(answer.reasoning, "Add.");
    return answer;
  };
  for (const std::string end : {"<|return|>", "<|endoftext|>"})
    EXPECT_EQ(answer_to("<|channel|>final<|message|>4" + end).text, "4");
  const Answer called = answer_to(" to=functions.f<|channel|>commentary json<|message|>{}<|call|>");
  EXPECT_EQ(called.text, "");
  ASSERT_EQ(called.calls.size(), 1U);
  EXPECT_EQ(called.calls[0].arguments, "{}");
}

TEST(Results, OfAStreamAreWrittenAsTheyGrowEachByteOnceAndEndTheirLine) {
  for (const bool stopped : {false, true}) {
    const OutputPath out;
    OutputFile file(out.path());
    OrderedFile ordered(file, {});
    Results results(ordered, nullptr, true);
    results.expect(0, {.id = "1"});
    results.generated(0, "a m");
    results.generated(0, "an,");
    results.drain();
    EXPECT_EQ(out.content(), "a man,");
    if (stopped)
      results.stopping();
    else
      results.finished(completion(0, "a man, a plan"));
    results.drain();
    EXPECT_EQ(out.content(), stopped ? "a man,\n" : "a man, a plan\n");
  }
}

TEST(Results, OfABarePromptWithSeveralAnswersHaveANumberAboveEach) {
  Kept kept;
  Results results(kept, nullptr, true);
  FinishedRequest done = completion(1, "one\nline");
  done.answers.push_back(completion(1, "two").answers[0]);
  results.expect(1, {.id = "1"});
  results.finished(std::move(done));
  results.drain();
  EXPECT_EQ(kept.lines[1], "--- 1 ---\none\nline\n--- 2 ---\ntwo\n");
}

TEST(Results, CountTheAnswersThatEndAtALimitThatNobodyStated) {
  Kept kept;
  Results results(kept, nullptr, false);
  for (const bool stated : {false, true}) {
    FinishedRequest done = completion(1, "");
    done.answers.resize(3);
    for (Answer& answer : done.answers) {
      answer.tokens.resize(64);
      answer.reason = FinishReason::length;
    }
    done.answers[1].reason = FinishReason::stop;
    results.expect(1, {.id = "1", .default_length = !stated});
    results.finished(std::move(done));
    EXPECT_EQ(results.cut_at_default(), 2U);
  }
  results.drain();
}

TEST(Results, AStopIsOnRecordAtOnceBehindWhatHadStarted) {
  OutputPath folder;
  std::filesystem::remove(folder.path());
  RunDirectory::Options settings;
  settings.path = folder.path();
  settings.manifest.set("requests", "1");
  settings.me = this_process("here", "");
  settings.sync_interval = std::chrono::hours(1);
  RunDirectory run(settings);
  RunStore store(run, true);
  Results results(store, nullptr, false);
  results.started(0);
  results.stopping();
  results.drain();
  JournalReader journal(run.job_folder() / "journal");
  EXPECT_EQ(journal.next()->record.kind, JournalRecord::Kind::started);
  EXPECT_EQ(journal.next()->record.kind, JournalRecord::Kind::stopped);
  EXPECT_EQ(read_status(folder.path())->state, RunState::stopped);
  std::filesystem::remove_all(folder.path());
}

// Keeps the writer waiting until it is released.
struct Held : ResultStore {
  void finished(RequestId /*request*/, bool /*failed*/, std::string /*line*/) override {
    released.wait(false);
  }
  std::atomic<bool> released = false;
};

TEST(Results, HaveNoRoomWhileTheWriterIsFarBehind) {
  Held held;
  Results results(held, nullptr, false);
  FinishedRequest large = completion(0, "");
  large.answers.resize(2);
  for (Answer& answer : large.answers) answer.tokens.resize(size_t{9} << 19);
  results.expect(0, {.id = "0"});
  EXPECT_TRUE(results.has_room());
  results.finished(std::move(large));
  EXPECT_FALSE(results.has_room());
  held.released = true;
  held.released.notify_all();
  results.drain();
  EXPECT_TRUE(results.has_room());
}

TEST(WriterThread, MovesAndIsIdleWithinALongRowOfTasks) {
  std::atomic<uint32_t> at_work = 0;
  int done = 0;
  std::vector<int> idle_after;
  std::vector<uint32_t> counts;
  WriterThread writer([&] { idle_after.push_back(done); }, &at_work);
  for (int task = 0; task < 9; ++task)
    writer.post([&] {
      counts.push_back(at_work);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      ++done;
    });
  writer.drain();
  EXPECT_TRUE(std::ranges::any_of(idle_after, [](int after) { return 1 < after && after < 9; }));
  EXPECT_EQ(idle_after.back(), 9);
  EXPECT_EQ(std::ranges::adjacent_find(counts), counts.end()) << "it stood still between two tasks";
  EXPECT_TRUE(std::ranges::all_of(counts, [](uint32_t count) { return count % 2 == 1; }));
}

TEST(Results, PassOnWhatTheStoreThrew) {
  Kept kept;
  Results results(kept, nullptr, false);
  for (const RequestId request : {1, 99, 2}) results.expect(request, {.id = "0"});
  results.finished(completion(1, ""));
  results.finished(completion(99, ""));
  EXPECT_THROW(results.drain(), Error);
  EXPECT_THROW(results.finished(completion(2, "")), Error);
  EXPECT_EQ(kept.lines.size(), 1U);
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

TEST(OutputFile, WithoutAReaderEndsSilently) {
  ::signal(SIGPIPE, SIG_IGN);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const FileDescriptor writer(ends[1]);
  OutputFile file(fmt::format("/proc/self/fd/{}", writer.get()));
  ::close(ends[0]);
  try {
    file.write("x");
    FAIL() << "was written";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), 141);
    EXPECT_EQ(error_block(error), "");
  }
}

TEST(OutputFile, KnowsTheFileThatItWouldOverwrite) {
  const OutputPath in, out;
  const LineReader reader(in.path());
  EXPECT_THROW(check_output(in.path(), {.asked = true}, &reader), Error);
  EXPECT_NO_THROW(check_output(in.path(), {.asked = true}, nullptr));
  EXPECT_NO_THROW(check_output(out.path(), {}, &reader));
}

}  // namespace
}  // namespace maniple
