#include <kernels/support/check.hpp>
#include <launch/input/request_feed.hpp>
#include <runtime/shared_model.hpp>

#include <gtest/gtest.h>
#include <support/temp_directory.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <fstream>
#include <set>
#include <thread>

namespace maniple {
namespace {

struct Order : RequestOrder {
  void expect(RequestId request, const RequestLabel& label) override {
    expected.emplace_back(request, label.id);
    if (label.reasoning) split.insert(request);
    labels.push_back(label);
    open.insert(request);
  }
  void refuse(RequestId request, const std::string& reason) override {
    refused.emplace_back(request, reason);
    open.erase(request);
  }
  void start_alone(RequestId request) override {
    EXPECT_EQ(open.size(), 1U) << "others are running";
    alone.push_back(request);
  }
  size_t unfinished() const override { return open.size(); }
  bool has_room() const override { return room; }

  std::vector<std::pair<RequestId, std::string>> expected, refused;
  std::set<RequestId> open, split;
  std::vector<RequestId> alone;
  std::vector<RequestLabel> labels;
  bool room = true;
};

RequestReader::Lines lines_of(std::vector<std::string> texts) {
  return [texts, next = uint64_t{0}]() mutable -> std::optional<LineReader::Line> {
    if (next == texts.size()) return std::nullopt;
    ++next;
    return LineReader::Line{next, texts[next - 1]};
  };
}

RequestReader::Options seeded(uint64_t run_seed) {
  RequestReader::Options options;
  options.run_seed = run_seed;
  return options;
}

// The input thread needs its time.
bool ready_soon(RequestFeed& feed) {
  for (int i = 0; i < 2000 && !feed.ready(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return feed.ready();
}
// A request that is not ready after this time will never be.
bool stays_unready(RequestFeed& feed) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return !feed.ready();
}

TEST(RequestFeed, NumbersRequestsInOrderAndRefusesWhatNobodyCanServe) {
  Order order;
  RequestFeed feed(lines_of({R"({"id":"a","tokens":[5]})", R"({"id":"b","tokens":[6],"max_tokens":-3})",
                             R"({"id":"c","tokens":[7]})"}),
                   seeded(1), order);
  const auto first = feed.next(), second = feed.next();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->id, 0U);
  EXPECT_EQ(first->prompt, std::vector<int32_t>{5});
  EXPECT_EQ(second->id, 2U);
  EXPECT_EQ(second->prompt, std::vector<int32_t>{7});
  EXPECT_FALSE(feed.next());
  EXPECT_EQ(order.expected.size(), 3U);
  ASSERT_EQ(order.refused.size(), 1U);
  EXPECT_EQ(order.refused[0].first, 1U);
}

TEST(RequestFeed, FillWaitsForAsManyRequestsAndForNoMoreThanTheInputHas) {
  const auto slowly =
      [lines = lines_of({R"({"tokens":[5]})", R"({"tokens":[6]})", R"({"tokens":[7]})"})]() mutable {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return lines();
      };
  for (const size_t wanted : {2, 9}) {
    Order order;
    RequestFeed feed(slowly, seeded(1), order);
    feed.fill(wanted);
    for (size_t i = 0; i < std::min<size_t>(wanted, 3); ++i) {
      EXPECT_TRUE(feed.ready()) << i << " of " << wanted;
      EXPECT_TRUE(feed.next());
    }
  }
}

TEST(RequestFeed, ASeedFollowsFromTheRunsSeedAndTheIdUnlessTheRequestHasOne) {
  const auto seeds = [](uint64_t run_seed, const std::vector<std::string>& lines) {
    Order order;
    RequestFeed feed(lines_of(lines), seeded(run_seed), order);
    std::vector<uint64_t> found;
    while (const auto request = feed.next()) found.push_back(request->sampling.seed);
    return found;
  };
  const std::string a = R"({"id":"a","tokens":[5]})", b = R"({"id":"b","tokens":[5]})",
                    own = R"({"id":"c","tokens":[5],"seed":42})";
  const auto one = seeds(1, {a, b, own}), reordered = seeds(1, {own, b, a}), two = seeds(2, {a, b, own});
  EXPECT_EQ(one, (std::vector<uint64_t>{reordered[2], reordered[1], 42}));
  EXPECT_NE(one[0], one[1]);
  EXPECT_NE(one[0], two[0]);
  EXPECT_EQ(two[2], 42U);
  EXPECT_EQ(one[0], request_seed(1, "\"a\""));
}

TEST(RequestFeed, AChatWithoutMaxTokensIsOpenEndedUnlessTheRunLimitsAll) {
  const Tokenizer tokenizer = read_tokenizer(ModelFiles(MANIPLE_TEST_DATA "/models/shakespeare"));
  for (const bool unlimited : {false, true}) {
    Order order;
    RequestReader::Options options;
    options.tokenizer = &tokenizer;
    options.render_chat = [](const auto& /*chat*/) { return "Hi"; };
    options.unlimited_chats = unlimited;
    RequestFeed feed(lines_of({R"({"id":"a","messages":[1]})", R"({"id":"b","messages":[1],"max_tokens":9})",
                               R"({"id":"c","prompt":"Hi"})"}),
                     options, order);
    std::vector<bool> open_ended;
    while (const auto request = feed.next()) open_ended.push_back(request->sampling.open_ended);
    EXPECT_EQ(open_ended, (std::vector<bool>{unlimited, false, false}));
  }
}

// OpenAI's defaults, where nobody states others.
TEST(RequestFeed, ABodyHasTheDefaultsOfItsShape) {
  const std::string
      completion = R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":[5]}})",
      given =
          R"({"custom_id":"b","url":"/v1/completions","body":{"prompt":[5],"temperature":0,"max_tokens":3}})",
      plain = R"({"id":"c","tokens":[5]})";
  for (const bool stated : {false, true}) {
    Order order;
    RequestReader::Options options;
    options.defaults.sampling.temperature = stated ? 0.5F : 0.0F;
    options.defaults.sampling.max_tokens = stated ? 7 : 64;
    options.default_temperature = options.default_length = !stated;
    RequestFeed feed(lines_of({completion, given, plain}), options, order);
    std::vector<std::pair<float, uint32_t>> found;
    while (const auto request = feed.next())
      found.emplace_back(request->sampling.temperature, request->sampling.max_tokens);
    using Found = std::vector<std::pair<float, uint32_t>>;
    EXPECT_EQ(found,
              stated ? (Found{{0.5F, 7}, {0.0F, 3}, {0.5F, 7}}) : (Found{{1.0F, 16}, {0.0F, 3}, {0.0F, 64}}));
  }
}

Tokenizer llama_style() {
  std::ifstream stream(std::filesystem::path(MANIPLE_TEST_DATA) / "tokenizers/llama3-style/tokenizer.json");
  return Tokenizer::from_json(std::string{std::istreambuf_iterator<char>(stream), {}});
}

struct Taken {
  std::vector<GenerationRequest> requests;
  Order order;
};
Taken taken(const std::vector<std::string>& lines, const Tokenizer* tokenizer) {
  Taken all;
  RequestReader::Options options;
  options.tokenizer = tokenizer;
  RequestFeed feed(lines_of(lines), options, all.order);
  while (auto request = feed.next()) all.requests.push_back(std::move(*request));
  return all;
}

TEST(RequestFeed, ScoresTheIdsOfPromptAndContinuationFromThoseOfThePromptOn) {
  const Tokenizer tokenizer = llama_style();
  const Taken all =
      taken({R"({"prompt":"The sky is ","continuation":"blue"})",
             R"({"prompt":"The sky is","continuation":" blue","prompt_logprobs":3,"max_tokens":2})",
             R"({"prompt":"","continuation":"blue"})",
             R"({"tokens":[5,6],"continuation":[7],"prompt_logprobs":-1})",
             R"({"tokens":[5,6,7],"prompt_logprobs":1})"},
            &tokenizer);
  ASSERT_EQ(all.requests.size(), 5U) << all.order.refused[0].second;
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(all.requests[i].prompt, tokenizer.encode("The sky is blue", true));
    EXPECT_EQ(all.requests[i].score_from, tokenizer.encode("The sky is", true).size());
    EXPECT_EQ(all.requests[i].sampling.prompt_logprobs, i == 0 ? 0 : 3);
    EXPECT_EQ(all.order.labels[i].prompt_logprobs, i == 0 ? -1 : 3) << "lists what the line asks for";
    EXPECT_EQ(all.requests[i].sampling.max_tokens, i == 0 ? 0U : 2U);
  }
  EXPECT_EQ(all.requests[2].score_from, 1U) << "behind the token that the tokenizer puts first";
  EXPECT_EQ(all.requests[3].prompt, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(all.requests[3].score_from, 2U);
  EXPECT_EQ(all.requests[3].sampling.prompt_logprobs, 0);
  EXPECT_EQ(all.requests[4].score_from, 1U);
  EXPECT_FALSE(all.order.labels[4].continuation);
}

TEST(RequestFeed, RefusesScoresThatThereAreNot) {
  const Tokenizer tokenizer = read_tokenizer(ModelFiles(MANIPLE_TEST_DATA "/models/shakespeare"));
  const auto ids = [](size_t count) { return nlohmann::json(std::vector<int>(count, 5)).dump(); };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"prompt":"","continuation":"x"})", "the prompt has no tokens"},
      {R"({"tokens":[],"continuation":[5]})", "the prompt has no tokens"},
      {R"({"prompt":"x ","continuation":""})", "continuation is empty"},
      {R"({"tokens":)" + ids(4001) + R"(,"prompt_logprobs":1000})", ""},
      {R"({"tokens":)" + ids(5000) + R"(,"continuation":[1,2],"prompt_logprobs":1000})", ""}};
  std::vector<std::string> lines;
  for (const auto& [line, reason] : cases) lines.push_back(line);
  const Taken all = taken(lines, &tokenizer);
  EXPECT_EQ(all.requests.size(), 2U);
  size_t refused = 0;
  for (const auto& [line, reason] : cases) {
    if (reason.empty()) continue;
    ASSERT_LT(refused, all.order.refused.size());
    EXPECT_NE(all.order.refused[refused].second.find(reason), std::string::npos)
        << all.order.refused[refused].second;
    ++refused;
  }
}

// Two texts of which the longer one has as many tokens.
TEST(RequestFeed, RefusesAContinuationThatLeavesNoTokenOfItsOwn) {
  auto json =
      nlohmann::json::parse(ModelFiles(MANIPLE_TEST_DATA "/models/shakespeare").text("tokenizer.json"));
  json["added_tokens"].push_back({{"content", "xyz"},
                                  {"id", json["model"]["vocab"].size() + json["added_tokens"].size()},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", false}});
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump());
  const Taken all = taken({R"({"prompt":"xy","continuation":"z"})"}, &tokenizer);
  ASSERT_EQ(all.order.refused.size(), 1U);
  EXPECT_NE(all.order.refused[0].second.find("nothing is left to score"), std::string::npos)
      << all.order.refused[0].second;
}

TEST(RequestFeed, AnEchoHasTheTextOfThePromptAndScoresOfItWhereTheAnswerHasThem) {
  const Tokenizer tokenizer = llama_style();
  const auto line = [](const std::string& id, const std::string& fields) {
    return R"({"custom_id":")" + id + R"(","url":"/v1/completions","body":{"echo":true,)" + fields + "}}";
  };
  const nlohmann::json ids = tokenizer.encode("Hé", true);
  const Taken all = taken(
      {line("a", R"("prompt":"Hé ")"), line("b", R"("prompt":"Hé ","logprobs":2,"max_tokens":0)"),
       line("c", R"("prompt":)" + ids.dump()), line("d", R"("prompt":"x","logprobs":1,"prompt_logprobs":3)")},
      &tokenizer);
  ASSERT_EQ(all.requests.size(), 4U);
  const std::vector<std::string> texts = {"Hé ", "Hé ",
                                          tokenizer.decode(ids.get<std::vector<int32_t>>(), false), "x"};
  const std::vector<std::array<int32_t, 3>> scores = {{-1, -1, -1}, {2, -1, 2}, {-1, -1, -1}, {1, 3, 3}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(all.order.labels[i].echo->text, texts[i]);
    EXPECT_EQ(all.order.labels[i].echo->logprobs, scores[i][0]) << i;
    EXPECT_EQ(all.order.labels[i].prompt_logprobs, scores[i][1]) << i;
    EXPECT_EQ(all.requests[i].sampling.prompt_logprobs, scores[i][2]) << i;
  }
  EXPECT_EQ(all.requests[1].sampling.max_tokens, 0U);
}

TEST(RequestFeed, TellsOnceOfAPromptThatBeginsWithTheTokenThatTheTokenizerAdds) {
  const Tokenizer tokenizer = llama_style();
  const auto start = tokenizer.encode("", true);
  ASSERT_EQ(start.size(), 1U);
  const std::string first(*tokenizer.token_text(start[0]));
  std::vector<std::string> notes;
  Order order;
  RequestReader::Options options;
  options.tokenizer = &tokenizer;
  options.note = [&](const std::string& note) { notes.push_back(note); };
  const auto line = [](const std::string& prompt) { return nlohmann::json{{"prompt", prompt}}.dump(); };
  {
    RequestFeed feed(lines_of({line("Hi"), line(first + "Hi"), line(first)}), options, order);
    while (feed.next()) continue;
  }
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("2 begins with " + first), std::string::npos) << notes[0];
}

TEST(RequestFeed, WarnsOnceOfEachFieldOfABodyThatIsIgnored) {
  const auto line = [](const std::string& id, const std::string& more) {
    return R"({"custom_id":")" + id + R"(","url":"/v1/completions","body":{"prompt":[5])" + more + "}}";
  };
  std::vector<std::string> warnings;
  Order order;
  RequestReader::Options options;
  options.warn = [&](const std::string& warning) { warnings.push_back(warning); };
  RequestFeed feed(lines_of({line("a", R"(,"stream":false)"), line("b", R"(,"user":"u","stream":true)"),
                             line("c", R"(,"user":"v")"), line("d", R"(,"user":"u","store":true)")}),
                   options, order);
  size_t served = 0;
  while (feed.next()) ++served;
  EXPECT_EQ(served, 4U);
  EXPECT_EQ(warnings, (std::vector<std::string>{
                          R"(ignored in bodies, as no answer depends on it: user, stream; first in "b")",
                          R"(ignored in bodies, as no answer depends on it: store; first in "d")"}));
}

TEST(RequestFeed, SplitsThoughtsAsTheRequestSaysElseTheRunButNotInCompletions) {
  std::string json = ModelFiles(MANIPLE_TEST_DATA "/models/shakespeare").text("tokenizer.json");
  const Tokenizer without = Tokenizer::from_json(json);
  for (const auto& [old, mark] :
       {std::pair<std::string, std::string>{"<|endoftext|>", "<think>"}, {"<|im_start|>", "</think>"}})
    json.replace(json.find(old), old.size(), mark);
  const Tokenizer with = Tokenizer::from_json(json);
  const auto line = [](const std::string& more) { return R"({"tokens":[5])" + more + "}"; };
  const std::vector<std::string> lines = {
      line(""),
      line(R"(,"reasoning":"off")"),
      line(R"(,"reasoning":"split")"),
      line(R"(,"reasoning":"think")"),
      line(R"(,"reasoning":"mistral")"),
      R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":[5]}})"};
  const auto served = [&](const Tokenizer* tokenizer, const std::string& reasoning) {
    Order order;
    RequestReader::Options options;
    options.tokenizer = tokenizer;
    options.reasoning = reasoning;
    RequestFeed feed(lines_of(lines), options, order);
    while (feed.next()) continue;
    std::set<RequestId> refused;
    for (const auto& [request, reason] : order.refused) refused.insert(request);
    return std::pair(order.split, refused);
  };
  using Served = std::pair<std::set<RequestId>, std::set<RequestId>>;
  EXPECT_EQ(served(&with, "off"), Served({2, 3}, {4}));
  EXPECT_EQ(served(&with, "auto"), Served({0, 2, 3}, {4}));
  EXPECT_EQ(served(&without, "auto"), Served({}, {3, 4}));
  EXPECT_EQ(served(nullptr, "auto"), Served({}, {3, 4}));
}

const std::vector<std::string> five = {R"({"tokens":[0]})", R"({"tokens":[1]})", R"({"tokens":[2]})",
                                       R"({"tokens":[3]})", R"({"tokens":[4]})"};

TEST(RequestFeed, PassesOverOtherShardsAndWhatHasAResult) {
  Ledger ledger(5, {0, 2});
  ledger.take({JournalRecord::Kind::finished, 0, {}}, 1);
  ledger.take({JournalRecord::Kind::failed, 2, {}}, 1);
  for (const bool retry : {false, true}) {
    Order order;
    RequestReader::Options options;
    options.shard = {0, 2};
    options.ledger = &ledger;
    options.retry_errors = retry;
    RequestFeed feed(lines_of(five), options, order);
    std::vector<RequestId> served;
    while (const auto request = feed.next()) served.push_back(request->id);
    EXPECT_EQ(served, retry ? (std::vector<RequestId>{2, 4}) : std::vector<RequestId>{4});
  }
}

TEST(RequestFeed, RefusesAnInputThatHoldsMoreOrLessThanWhatWasChecked) {
  for (const uint64_t checked : {4, 5, 6}) {
    const Ledger ledger(checked, {});
    Order order;
    RequestReader::Options options;
    options.requests = checked;
    options.ledger = &ledger;
    RequestFeed feed(lines_of(five), options, order);
    try {
      while (feed.next()) {
      }
      EXPECT_EQ(checked, 5U);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::input);
      EXPECT_NE(checked, 5U);
      EXPECT_EQ(order.expected.size(), std::min<size_t>(checked, 5));
    }
  }
}

TEST(RequestFeed, RunsSuspectsAloneAfterAllOthersAndNotThoseInQuarantine) {
  const TempDirectory scratch;
  const std::filesystem::path once = scratch.path() / "once", alone = scratch.path() / "alone";
  {
    JournalWriter writer(once);
    for (const RequestId request : {1, 2, 3}) writer.append({JournalRecord::Kind::started, request, {}});
    writer.flush();
    JournalWriter second(alone);
    second.append({JournalRecord::Kind::started_alone, 3, {}});
    second.flush();
  }
  Ledger ledger(5, {});
  for (const auto& journal : {once, once, alone}) ledger.replay(journal);
  Order order;
  RequestReader::Options options;
  options.ledger = &ledger;
  RequestFeed feed(lines_of(five), options, order);
  const auto take = [&] {
    EXPECT_TRUE(ready_soon(feed));
    const auto request = feed.next();
    return request ? static_cast<int>(request->id) : -1;
  };
  EXPECT_EQ(take(), 0);
  EXPECT_EQ(take(), 4);
  EXPECT_TRUE(stays_unready(feed)) << "two are running";
  order.open.erase(0);
  EXPECT_TRUE(stays_unready(feed)) << "one is running";
  order.open.erase(4);
  const int first = take();
  EXPECT_TRUE(stays_unready(feed)) << "the first suspect is running";
  order.open.clear();
  EXPECT_EQ(first + take(), 1 + 2);
  EXPECT_EQ(take(), -1);
  EXPECT_EQ(order.alone.size(), 2U);
  ASSERT_EQ(order.refused.size(), 1U);
  EXPECT_EQ(order.refused[0].first, 3U);
  EXPECT_NE(order.refused[0].second.find("quarantined"), std::string::npos);
}

TEST(RequestFeed, RunsAloneWhatAnEarlierJobLeftForQuarantineWhenErrorsAreRetried) {
  const TempDirectory scratch;
  JournalWriter writer(scratch.path() / "journal");
  writer.append({JournalRecord::Kind::started_alone, 3, {}});
  writer.flush();
  Ledger ledger(5, {});
  for (int fault = 0; fault < 2; ++fault) ledger.replay(scratch.path() / "journal");
  ASSERT_TRUE(ledger.is_quarantined(3));
  Order order;
  RequestReader::Options options;
  options.ledger = &ledger;
  options.retry_errors = true;
  RequestFeed feed(lines_of(five), options, order);
  std::vector<RequestId> taken;
  for (int i = 0; i < 5; ++i) {
    if (i == 4) order.open.clear();
    EXPECT_TRUE(ready_soon(feed));
    taken.push_back(feed.next().value().id);
  }
  EXPECT_EQ(taken, (std::vector<RequestId>{0, 1, 2, 4, 3}));
  EXPECT_EQ(order.alone.size(), 1U);
  EXPECT_TRUE(order.refused.empty());
}

TEST(RequestFeed, NeverWaitsForTheInputAndSaysWhetherItMoves) {
  Order order;
  std::atomic<bool> stuck = true;
  RequestFeed feed(
      [&, next = uint64_t{0}]() mutable -> std::optional<LineReader::Line> {
        while (stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (next == five.size()) return std::nullopt;
        ++next;
        return LineReader::Line{next, five[next - 1]};
      },
      {}, order);
  EXPECT_TRUE(stays_unready(feed));
  EXPECT_FALSE(feed.moved());
  EXPECT_FALSE(feed.moved());
  stuck = false;
  EXPECT_TRUE(ready_soon(feed));
  EXPECT_TRUE(feed.moved());
}

TEST(RequestFeed, MovesWhileItWaitsForALineThatHasNotCome) {
  Order order;
  std::atomic<bool> came = false;
  RequestFeed feed(
      [&]() -> std::optional<LineReader::Line> {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return LineReader::Line{1, came ? five[1] : ""};
      },
      {}, order);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(stays_unready(feed));
    EXPECT_TRUE(feed.moved());
  }
  came = true;
  EXPECT_TRUE(ready_soon(feed));
  const auto first = feed.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->id, 0U) << "only lines count";
}

TEST(RequestFeed, RefusesABadLineOfAnUncheckedInputAlone) {
  const std::vector<std::string> lines = {"nonsense", R"({"id":"a","promt":""})",
                                          R"({"custom_id":"b","id":8})", R"({"prompt":"text"})",
                                          R"({"id":9,"tokens":[5]})"};
  Order order;
  RequestReader::Options options;
  EXPECT_THROW(RequestFeed(lines_of(lines), options, order).next(), Error);
  options.unchecked = true;
  RequestFeed feed(lines_of(lines), options, order);
  const auto served = feed.next();
  ASSERT_TRUE(served);
  EXPECT_EQ(served->id, 4U);
  ASSERT_EQ(order.refused.size(), 4U);
  EXPECT_EQ(order.expected, (std::vector<std::pair<RequestId, std::string>>{
                                {0, "1"}, {1, "\"a\""}, {2, "\"b\""}, {3, "4"}, {4, "9"}}));
  EXPECT_NE(order.refused[0].second.find("line 1: not valid JSON"), std::string::npos);
  EXPECT_NE(order.refused[3].second.find("needs a tokenizer"), std::string::npos);
}

TEST(RequestFeed, ReadsNoFurtherAheadThanItsQueueIsLong) {
  Order order;
  std::atomic<uint64_t> read = 0;
  RequestFeed feed([&] { return std::optional(LineReader::Line{++read, five[0]}); }, {}, order);
  for (int i = 0; i < 2000 && read < 4000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(read, 5000U);
  for (RequestId request = 0; request < 10'000; ++request) EXPECT_EQ(feed.next()->id, request);
}

TEST(RequestFeed, EndsWhileItsQueueIsFullAndNobodyTakesAnything) {
  Order order;
  const RequestFeed feed([&] { return std::optional(LineReader::Line{1, five[0]}); }, {}, order);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST(RequestFeed, WaitsForRoom) {
  Order order;
  RequestFeed feed(lines_of(five), {}, order);
  EXPECT_TRUE(ready_soon(feed));
  order.room = false;
  EXPECT_FALSE(feed.ready());
  EXPECT_TRUE(feed.moved()) << "who writes the results is watched by others";
}

}  // namespace
}  // namespace maniple
