#include <kernels/support/check.hpp>
#include <launch/input/requests.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

namespace maniple {
namespace {

class InputFileOnDisk {
 public:
  explicit InputFileOnDisk(const std::string& content, const std::string& ending = "")
      : path_(::testing::TempDir() + "maniple_requests_XXXXXX" + ending) {
    ::close(::mkstemps(path_.data(), static_cast<int>(ending.size())));
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~InputFileOnDisk() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string refusal(const std::string& line) {
  try {
    parse_request({7, line});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    return error.what();
  }
  ADD_FAILURE() << "was not refused: " << line;
  return {};
}

void expect_refusal(const std::string& line, const std::string& part) {
  const std::string message = refusal(line);
  EXPECT_TRUE(message.starts_with("line 7: ")) << message;
  EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
}

std::string validation_error(const std::string& content) {
  const InputFileOnDisk file(content);
  LineReader reader(file.path());
  try {
    validate_requests(reader);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    return error.what();
  }
  ADD_FAILURE() << "was not refused";
  return {};
}

TEST(RequestLine, HoldsEveryField) {
  const RequestLine line = parse_request(
      {3,
       R"({"id":"a","tokens":[1,2],"temperature":0.25,"top_k":5,"top_p":0.5,"min_p":0.125,"seed":18446744073709551615,"max_tokens":9,)"
       R"("min_tokens":2,"ignore_eos":true,"stop":["x","y"],"stop_token_ids":[4],"logprobs":3,"n":5,"prompt_logprobs":2,)"
       R"("repetition_penalty":1.5,"frequency_penalty":-2,"presence_penalty":0.5,"allowed_token_ids":[4,5],"bad_words":"w",)"
       R"("logit_bias":{"7":-100,"10":2.5}})"});
  EXPECT_EQ(line.label.id, "\"a\"");
  EXPECT_FALSE(line.prompt);
  EXPECT_EQ(line.tokens, (std::vector<int32_t>{1, 2}));
  GenerationRequest request;
  apply_stated(line.sampling, request.sampling);
  EXPECT_EQ(request.sampling.temperature, 0.25F);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.sampling.top_p, 0.5F);
  EXPECT_EQ(request.sampling.min_p, 0.125F);
  EXPECT_EQ(request.sampling.seed, UINT64_MAX);
  EXPECT_EQ(request.sampling.max_tokens, 9U);
  EXPECT_EQ(request.sampling.min_tokens, 2U);
  EXPECT_TRUE(request.sampling.ignore_eos);
  EXPECT_EQ(request.sampling.stop_token_ids, std::vector<int32_t>{4});
  EXPECT_EQ(request.sampling.logprobs, 3);
  EXPECT_EQ(request.sampling.n, 5U);
  EXPECT_EQ(request.sampling.prompt_logprobs, 2);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(request.sampling.frequency_penalty, -2.0F);
  EXPECT_EQ(request.sampling.presence_penalty, 0.5F);
  EXPECT_EQ(request.sampling.allowed_token_ids, (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(request.sampling.logit_bias, (std::vector<TokenBias>{{7, -100}, {10, 2.5F}}));
  EXPECT_EQ(request.sampling.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(request.sampling.bad_words, std::vector<std::string>{"w"});
}

TEST(RequestLine, HasABiasOfTokenIdsOrIsMalformed) {
  const auto with = [](const std::string& fields) {
    return parse_request({1, "{\"prompt\":\"x\"," + fields + "}"});
  };
  for (const char* malformed : {R"("logit_bias":[1])", R"("logit_bias":{"a":1})", R"("logit_bias":{"":1})",
                                R"("logit_bias":{"1 ":1})", R"("logit_bias":{"1":"2"})",
                                R"("bad_words":[""])", R"("frequency_penalty":"1")"})
    EXPECT_THROW(with(malformed), Error) << malformed;
  for (const char* refused :
       {R"("logit_bias":{"99999999999":1})", R"("logit_bias":{"1":1,"01":2})", R"("allowed_token_ids":[])"})
    EXPECT_NE(with(refused).error, "") << refused;
}

TEST(RequestLine, MayHaveAContinuationThatTakesTheBlanksAtTheEndOfThePrompt) {
  struct Case {
    const char *prompt, *continuation, *before, *after;
  };
  for (const Case& one : {Case{"The sky is", " blue", "The sky is", " blue"},
                          Case{"The sky is \t\n", "blue", "The sky is", " \t\nblue"},
                          Case{"é\u3000\u00a0", "x ", "é", "\u3000\u00a0x "}, Case{" ", "x", "", " x"}}) {
    const nlohmann::json line = {{"prompt", one.prompt}, {"continuation", one.continuation}};
    const RequestLine parsed = parse_request({1, line.dump()});
    EXPECT_EQ(parsed.prompt, one.before);
    EXPECT_EQ(parsed.continuation, one.after);
    EXPECT_TRUE(parsed.label.continuation);
    EXPECT_EQ(parsed.sampling.max_tokens, 0U);
    EXPECT_EQ(parsed.error, "");
  }
  const RequestLine ids = parse_request({1, R"({"tokens":[1,2],"continuation":[3,4],"max_tokens":5,"n":2})"});
  EXPECT_EQ(ids.tokens, (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(ids.continued_from, 2U);
  EXPECT_EQ(ids.sampling.max_tokens, 5U);
  EXPECT_FALSE(parse_request({1, R"({"prompt":"x ","continuation":null})"}).label.continuation);
  EXPECT_EQ(parse_request({1, R"({"prompt":"x ","continuation":null})"}).prompt, "x ");
}

TEST(RequestLine, RefusesAContinuationOfAnotherFormThanThePrompt) {
  for (const char* line : {R"({"messages":[1],"continuation":"x"})", R"({"messages":[1],"continuation":[1]})",
                           R"({"prompt":"x","continuation":[1]})", R"({"prompt":"x","continuation":1})",
                           R"({"tokens":[1],"continuation":"x"})"})
    expect_refusal(line, "supported: a text beside prompt, or token ids beside tokens");
  expect_refusal(R"({"tokens":[1],"continuation":[-1]})", "token id");
  for (const char* line : {R"({"prompt":"x ","continuation":""})", R"({"tokens":[1],"continuation":[]})"})
    EXPECT_EQ(parse_request({1, line}).error, "continuation is empty: there is nothing to score");
}

TEST(RequestLine, TheIdIsKeptAsItWasWrittenAndTheLineNumberStandsInForNone) {
  EXPECT_EQ(parse_request({7, R"({"id":"ü\n","prompt":""})"}).label.id, "\"ü\\n\"");
  EXPECT_EQ(parse_request({7, R"({"id":-12,"prompt":""})"}).label.id, "-12");
  EXPECT_EQ(parse_request({7, R"({"prompt":"x"})"}).label.id, "7");
  EXPECT_EQ(parse_request({7, R"({"id":null,"prompt":"x"})"}).label.id, "7");
}

TEST(RequestLine, OfMessagesIsAChatThatIsAnsweredInOurShape) {
  const RequestLine line = parse_request(
      {7,
       R"({"id":"a","messages":[{"role":"user","content":"Hi"}],"tools":[],"enable_thinking":false,"temperature":0.5,"logprobs":2})"});
  EXPECT_EQ(line.label.id, "\"a\"");
  EXPECT_EQ(line.label.shape, RequestShape::plain);
  ASSERT_TRUE(line.chat);
  EXPECT_EQ((*line.chat)["messages"][0]["content"], "Hi");
  EXPECT_EQ(line.sampling.temperature, 0.5F);
  EXPECT_EQ(line.sampling.logprobs, 2);
  EXPECT_FALSE(parse_request({7, R"({"prompt":"x","messages":null})"}).chat);
  expect_refusal(R"({"messages":[1],"prompt":"x"})", "both prompt and messages");
  expect_refusal(R"({"messages":[]})", "messages is []");
  expect_refusal(R"({"prompt":"x","tools":[]})", "unknown field \"tools\"");
  expect_refusal(R"({"message":[1]})", "did you mean \"messages\"?");
}

TEST(RequestLine, SaysByNameWhetherThoughtsGoApart) {
  EXPECT_EQ(parse_request({7, R"({"prompt":"x","reasoning":"split"})"}).reasoning, "auto");
  EXPECT_EQ(parse_request({7, R"({"tokens":[1],"reasoning":"qwen3"})"}).reasoning, "think");
  EXPECT_EQ(parse_request({7, R"({"messages":[1],"reasoning":"off"})"}).reasoning, "off");
  EXPECT_FALSE(parse_request({7, R"({"prompt":"x","reasoning":null})"}).reasoning);
  expect_refusal(R"({"prompt":"x","reasoning":"on"})",
                 R"(reasoning is "on"; supported: auto, off, think, mistral, harmony or split)");
  expect_refusal(R"({"prompt":"x","reasoning":true})", "reasoning is true; supported: a string");
}

TEST(RequestLine, WithAContentPartThatIsNoTextIsRefusedByItsType) {
  const std::string image = R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])";
  expect_refusal(R"({"messages":)" + image + "}",
                 "content has a part of type \"image_url\"; supported: text");
  expect_refusal(
      R"({"custom_id":"a","url":"/v1/chat/completions","body":{"model":"m","messages":)" + image + "}}",
      "\"image_url\"");
  expect_refusal(R"({"messages":[{"role":"user","content":["Hi"]}]})", "a part of type null");
  expect_refusal(R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "without a text");
}

TEST(RequestLine, AStopStringMayStandAlone) {
  EXPECT_EQ(parse_request({7, R"({"prompt":"x","stop":"end"})"}).sampling.stop,
            std::vector<std::string>{"end"});
}

TEST(RequestLine, IsRefusedWithItsNumber) {
  expect_refusal(R"({"prompt":"x")", "not valid JSON: column 14");
  expect_refusal("[1]", "not a JSON object");
  expect_refusal("{\"prompt\":\"\xff\"}", "byte 12 is not valid UTF-8");
  expect_refusal(R"({"prompt":"\ud800"})", "surrogate");
  expect_refusal(R"({"prompt":"x","max_token":1})",
                 "unknown field \"max_token\"; did you mean \"max_tokens\"?");
  expect_refusal(R"({"prompt":"x","qqqqqq":1})", "known: id, prompt");
  expect_refusal(R"({"prompt":"x","prompt":"y"})", "given twice");
  expect_refusal(R"({"prompt":"x","tokens":[1]})", "both prompt and tokens");
  expect_refusal(R"({"id":1})", "neither prompt nor tokens");
  expect_refusal(R"({"prompt":5})", "prompt is 5; supported: a string");
  expect_refusal(R"({"tokens":["a"]})", "token id");
  expect_refusal(R"({"tokens":[-1]})", "token id");
  expect_refusal(R"({"tokens":[2147483648]})", "token id");
  expect_refusal(R"({"id":1.5,"prompt":"x"})", "id is 1.5");
  expect_refusal(R"({"prompt":"x","temperature":"hot"})", "temperature is \"hot\"");
  expect_refusal(R"({"prompt":"x","max_tokens":1.5})", "max_tokens is 1.5; supported: a whole number");
  expect_refusal(R"({"prompt":"x","ignore_eos":1})", "true or false");
  expect_refusal(R"({"prompt":"x","stop":""})", "stop is \"\"");
  expect_refusal(R"({"prompt":"x","stop":["a",""]})", "stop is");
  expect_refusal(R"({"prompt":"x","stop":[1]})", "stop is");
}

TEST(RequestLine, ANumberThatNoSettingCanHoldFailsThatRequestOnly) {
  EXPECT_EQ(parse_request({7, R"({"prompt":"x","max_tokens":-1})"}).error,
            "max_tokens (-1) must be from 0 to 4294967295");
  EXPECT_FALSE(parse_request({7, R"({"prompt":"x","top_k":9999999999})"}).error.empty());
  EXPECT_FALSE(parse_request({7, R"({"prompt":"x","seed":-1})"}).error.empty());
  EXPECT_TRUE(parse_request({7, R"({"prompt":"x","temperature":9})"}).error.empty());
}

TEST(Validation, CountsTheRequestsAndRewinds) {
  const InputFileOnDisk file("\xEF\xBB\xBF{\"tokens\":[1]}\r\n\n  \n{\"id\":\"b\",\"prompt\":\"x\"}");
  LineReader reader(file.path());
  const InputSummary summary = validate_requests(reader);
  EXPECT_EQ(summary.requests, 2U);
  EXPECT_EQ(summary.first_text, "line 4");
  const auto line = reader.next();
  ASSERT_TRUE(line);
  EXPECT_EQ(line->number, 1U);
  EXPECT_EQ(parse_request(*line).label.id, "1");
}

TEST(Validation, StopStringsNeedATokenizerToo) {
  const InputFileOnDisk file("{\"tokens\":[1]}\n{\"tokens\":[1],\"stop\":\"x\"}\n");
  LineReader reader(file.path());
  EXPECT_EQ(validate_requests(reader).first_text, "line 2");
}

TEST(Validation, NamesBothLinesOfADuplicateId) {
  const std::string error = validation_error(
      "{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":7,\"prompt\":\"x\"}\n{\"id\":\"a\",\"prompt\":\"y\"}\n");
  EXPECT_NE(error.find("line 3: the id \"a\" is that of line 1"), std::string::npos) << error;
}

TEST(Validation, ALineNumberThatStandsInForAnIdMayCollideWithAGivenOne) {
  const std::string error = validation_error("{\"id\":2,\"prompt\":\"x\"}\n{\"prompt\":\"x\"}\n");
  EXPECT_NE(error.find("line 2: the id 2 is that of line 1"), std::string::npos) << error;
}

TEST(Validation, ATextIdIsNotANumberId) {
  const InputFileOnDisk file("{\"id\":7,\"prompt\":\"x\"}\n{\"id\":\"7\",\"prompt\":\"x\"}\n");
  LineReader reader(file.path());
  EXPECT_EQ(validate_requests(reader).requests, 2U);
}

TEST(Validation, ShowsTenErrorsAndCountsTheOthers) {
  std::string content;
  for (int line = 0; line < 13; ++line) content += "{\"prompt\":}\n";
  const std::string error = validation_error(content);
  EXPECT_NE(error.find("13 bad lines"), std::string::npos) << error;
  EXPECT_NE(error.find("line 10: "), std::string::npos) << error;
  EXPECT_EQ(error.find("line 11: "), std::string::npos) << error;
  EXPECT_NE(error.find("and 3 more"), std::string::npos) << error;
}

std::string gzipped(const std::string& content) {
  const std::string path = ::testing::TempDir() + "maniple_requests_gzip";
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  gzclose(file);
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  std::remove(path.c_str());
  return bytes.str();
}

TEST(Lines, OfSeveralFilesAlsoPackedAreCountedOnAndNamedByTheirFile) {
  std::string many;
  for (int line = 1; line <= 50'000; ++line) many += "{\"tokens\":[" + std::to_string(line) + "]}\n";
  const InputFileOnDisk plain("\n{\"tokens\":[1]}"), packed(gzipped(many)), bad("{}\n");
  LineReader reader({plain.path(), packed.path()});
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(validate_requests(reader).requests, 50'001U);
    auto line = reader.next();
    ASSERT_TRUE(line);
    EXPECT_EQ(line->where, plain.path() + " line 2");
    line = reader.next();
    ASSERT_TRUE(line);
    EXPECT_EQ(line->number, 3U);
    EXPECT_EQ(line->where, packed.path() + " line 1");
    EXPECT_EQ(line->text, "{\"tokens\":[1]}");
    reader.rewind();
  }
  LineReader with_bad({plain.path(), bad.path()});
  try {
    validate_requests(with_bad);
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(bad.path() + " line 1: neither prompt"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(LineReader({plain.path(), packed.path()}).hash(), reader.hash());
  EXPECT_NE(LineReader({packed.path(), plain.path()}).hash(), reader.hash());
}

TEST(Lines, OfAPackedFileThatIsCutOffAreRefused) {
  std::string content;
  for (int line = 0; line < 20'000; ++line) content += "{\"tokens\":[" + std::to_string(line) + "]}\n";
  const std::string packed = gzipped(content);
  const std::string error = validation_error(packed.substr(0, packed.size() - 9));
  EXPECT_NE(error.find("cannot unpack"), std::string::npos) << error;
}

TEST(Lines, OfPackedMembersOneBehindTheOtherAreAllRead) {
  const std::string one = gzipped("{\"tokens\":[1]}\n"), zeros(600'000, '\0');
  const InputFileOnDisk file(one + gzipped("") + one + zeros + one + zeros);
  LineReader reader(file.path());
  EXPECT_EQ(validate_requests(reader).requests, 3U);
}

TEST(Lines, ThatFollowPackedOnesUnpackedAreNamed) {
  const std::string packed = gzipped("{\"tokens\":[1]}\n");
  for (const std::string& rest :
       {std::string("{\"tokens\":[2]}\n"), std::string("\x1f"), std::string(300'000, 'x')}) {
    const std::string error = validation_error(packed + rest);
    EXPECT_NE(error.find("cannot unpack"), std::string::npos) << error;
    const std::string where = fmt::format("from byte {} on, is not gzip", packed.size());
    EXPECT_EQ(error.find(where) == std::string::npos, rest[0] == '\x1f') << error;
  }
}

std::string reading_error(LineReader& reader) {
  try {
    while (reader.next()) {
    }
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    return error.what();
  }
}

TEST(Lines, OfAFileThatIsChangedWhileItIsReadAreRefused) {
  std::string content;
  for (int line = 0; line < 50'000; ++line) content += "{\"tokens\":[" + std::to_string(line) + "]}\n";
  for (const std::string& bytes : {content, gzipped(content)})
    for (const auto mode : {std::ios::app, std::ios::in}) {  // one grows, one is overwritten in place
      const InputFileOnDisk file(bytes);
      LineReader reader(file.path());
      validate_requests(reader);
      ASSERT_TRUE(reader.next());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the clock of file times is a coarse one
      std::ofstream(file.path(), mode | std::ios::binary | std::ios::out) << bytes[0];
      EXPECT_EQ(reading_error(reader), file.path() + " was changed while it was read");
    }
}

TEST(Lines, OfAFileThatIsReplacedAreThoseOfTheOldOne) {
  const InputFileOnDisk file("{\"tokens\":[1]}\n"), other("{}\n");
  LineReader reader(file.path());
  validate_requests(reader);
  ASSERT_EQ(std::rename(other.path().c_str(), file.path().c_str()), 0);
  EXPECT_EQ(reader.next()->text, "{\"tokens\":[1]}");
  EXPECT_EQ(reading_error(reader), "");
}

TEST(Validation, RefusesAnInputWithoutRequestsAndOneThatIsNotThere) {
  EXPECT_NE(validation_error("\n\n").find("holds no request"), std::string::npos);
  EXPECT_THROW(LineReader("/nowhere/prompts.jsonl"), Error);
  EXPECT_THROW(LineReader reader(::testing::TempDir()), Error);
}

TEST(Validation, CountsChatsThatStateNoLimitAndFindsRawText) {
  const std::string chat = R"("messages":[{"role":"user","content":"Hi"}])";
  const InputFileOnDisk file(R"({"tokens":[1]})"
                             "\n{" +
                             chat + "}\n{" + chat + R"(,"max_tokens":9})" + "\n" +
                             R"({"custom_id":"a","url":"/v1/chat/completions","body":{"model":"m",)" + chat +
                             "}}\n{\"prompt\":\"x\"}\n");
  LineReader reader(file.path());
  const InputSummary summary = validate_requests(reader);
  EXPECT_EQ(summary.requests, 5U);
  EXPECT_EQ(summary.unlimited_chats, 2U);
  EXPECT_EQ(summary.first_text, "line 2");
  EXPECT_EQ(summary.first_chat, "line 2");
  EXPECT_EQ(summary.first_prompt, "line 5");
}

TEST(Validation, TakesAPromptWithAContinuationForNoQuestion) {
  const InputFileOnDisk file(R"({"prompt":"x","continuation":"y"})");
  LineReader reader(file.path());
  const InputSummary summary = validate_requests(reader);
  EXPECT_EQ(summary.first_prompt, "");
  EXPECT_EQ(summary.first_text, "line 1");
}

TEST(Validation, NamesTheFilesOfIdsThatAreDoubled) {
  const InputFileOnDisk first("{\"id\":1,\"prompt\":\"a\"}\n\n{\"id\":2,\"prompt\":\"a\"}\n"),
      second("{\"id\":3,\"prompt\":\"a\"}\n"),
      third("{\"id\":2,\"prompt\":\"a\"}\n{\"id\":3,\"prompt\":\"a\"}\n");
  LineReader reader({first.path(), second.path(), third.path()});
  try {
    validate_requests(reader);
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(fmt::format("{} line 1: the id 2 is that of {} line 3", third.path(), first.path())),
              std::string::npos)
        << what;
    EXPECT_NE(what.find(fmt::format("{} line 2: the id 3 is that of {} line 1", third.path(), second.path())),
              std::string::npos)
        << what;
  }
}

TEST(Validation, NamesTheFileOfALineThatIsNotUtf8) {
  const InputFileOnDisk text("a\nb\xff\n", ".txt");
  LineReader reader(std::vector{text.path()},
                    [](const LineReader::Line& line) { return request_of_text(line); });
  try {
    validate_requests(reader);
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              text.path() + " line 2: byte 2 is not valid UTF-8; convert the text to UTF-8");
  }
}

TEST(Prompt, MustBeUtf8) {
  const auto parsed = [](const std::string& text) { return parse_request({1, request_of_text({1, text})}); };
  EXPECT_EQ(parsed("\"ROMEO\":\n").prompt, "\"ROMEO\":\n");
  EXPECT_THROW(parsed("\xc3"), Error);
}

TEST(Prompt, OfAChatIsTheUsersMessageBehindTheSystems) {
  EXPECT_EQ((*parse_request({1, request_of_text({1, "Hi"}, true, "Be brief")}).chat)["messages"].dump(),
            R"([{"role":"system","content":"Be brief"},{"role":"user","content":"Hi"}])");
  EXPECT_EQ((*parse_request({1, request_of_text({1, "Hi"}, true)}).chat)["messages"].size(), 1U);
}

TEST(Defaults, GoFromTheModelOverTheCommandLineToTheRequest) {
  GenerationConfig model;
  EXPECT_EQ(default_request(model, {}).sampling.temperature, 0.0F);
  model.sampling.max_tokens = 7;
  model.sampling.stop = {"m"};
  EXPECT_EQ(default_request(model, {}).sampling.max_tokens, 7U);
  EXPECT_EQ(default_request(model, {}).sampling.stop, std::vector<std::string>{"m"});
  model.sampling.max_tokens.reset();
  model.sampling.temperature = 0.5;
  model.sampling.top_k = 10;
  model.sampling.top_p = 0.75;
  StatedSampling command_line;
  command_line.top_k = 20;
  command_line.stop = {"a"};
  GenerationRequest request = default_request(model, command_line);
  apply_stated(parse_request({1, R"({"prompt":"x","top_p":0.25,"stop":["b"]})"}).sampling, request.sampling);
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_k, 20);
  EXPECT_EQ(request.sampling.top_p, 0.25F);
  EXPECT_EQ(request.sampling.stop, std::vector<std::string>{"b"});
  EXPECT_EQ(request.sampling.max_tokens, 64U);
}

TEST(RequestSeed, StaysWhatItIs) {  // results of seeded runs depend on it
  EXPECT_EQ(request_seed(0, "1"), 7335560060985733464U);
  EXPECT_EQ(request_seed(7, "\"a\""), 1798484605228563948U);
}

}  // namespace
}  // namespace maniple
