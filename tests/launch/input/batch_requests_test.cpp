#include <kernels/support/check.hpp>
#include <launch/input/requests.hpp>
#include <launch/output/result_lines.hpp>
#include <runtime/checkpoint/model_files.hpp>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <set>

namespace maniple {
namespace {

using nlohmann::json;

json completion_line(const json& more = json::object()) {
  json line = {{"custom_id", "a"},
               {"method", "POST"},
               {"url", "/v1/completions"},
               {"body", {{"model", "m"}, {"prompt", "ROMEO:"}}}};
  line["body"].update(more);
  return line;
}

json chat_line(const json& more) {
  json line = {{"custom_id", "a"},
               {"method", "POST"},
               {"url", "/v1/chat/completions"},
               {"body", {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}}}};
  line["body"].update(more);
  return line;
}

RequestLine parsed(const json& line) { return parse_request({7, line.dump()}); }

void expect_batch_refusal(const json& line, const std::string& part) {
  try {
    parsed(line);
    ADD_FAILURE() << "was not refused: " << line;
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ExitCode::input);
    EXPECT_TRUE(what.starts_with("line 7: ")) << what;
    EXPECT_NE(what.find(part), std::string::npos) << what << "\n  lacks: " << part;
  }
}

TEST(BatchRequest, OfACompletionArrives) {
  const RequestLine line = parsed(completion_line({{"max_tokens", 9},
                                                   {"temperature", 0.5},
                                                   {"top_p", 0.25},
                                                   {"seed", 5},
                                                   {"stop", {"x"}},
                                                   {"logprobs", 3},
                                                   {"n", 3},
                                                   {"best_of", 3},
                                                   {"prompt_logprobs", 2},
                                                   {"stream", false},
                                                   {"echo", false},
                                                   {"frequency_penalty", 0.5},
                                                   {"presence_penalty", 0.0},
                                                   {"logit_bias", {{"50256", -100}}},
                                                   {"user", "u"},
                                                   {"top_k", 4}}));
  EXPECT_EQ(line.label.id, "\"a\"");
  EXPECT_EQ(line.label.shape, RequestShape::completion);
  EXPECT_EQ(line.label.model, "m");
  EXPECT_EQ(line.prompt, "ROMEO:");
  GenerationRequest request;
  apply_stated(line.sampling, request.sampling);
  EXPECT_EQ(request.sampling.max_tokens, 9U);
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_p, 0.25F);
  EXPECT_EQ(request.sampling.seed, 5U);
  EXPECT_EQ(request.sampling.logprobs, 3);
  EXPECT_EQ(request.sampling.n, 3U);
  EXPECT_EQ(request.sampling.prompt_logprobs, 2);
  EXPECT_FALSE(line.label.echo);
  EXPECT_EQ(parsed(completion_line({{"echo", true}})).label.echo->text, "ROMEO:");
  EXPECT_EQ(request.sampling.frequency_penalty, 0.5F);
  EXPECT_EQ(request.sampling.logit_bias, (std::vector<TokenBias>{{50256, -100}}));
  EXPECT_EQ(request.sampling.top_k, 4);
  EXPECT_EQ(request.sampling.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(parsed(completion_line({{"prompt", {1, 2}}})).tokens, (std::vector<int32_t>{1, 2}));
}

TEST(BatchRequest, OfAChatKeepsWhatTheTemplateNeeds) {
  const RequestLine line = parsed(chat_line({{"max_completion_tokens", 9},
                                             {"logprobs", true},
                                             {"top_logprobs", 2},
                                             {"prompt_logprobs", 1},
                                             {"n", 2},
                                             {"tools", {{{"type", "function"}}}},
                                             {"chat_template_kwargs", {{"enable_thinking", false}}},
                                             {"response_format", {{"type", "text"}}}}));
  EXPECT_EQ(line.label.shape, RequestShape::chat);
  EXPECT_EQ(line.sampling.max_tokens, 9U);
  EXPECT_EQ(line.sampling.logprobs, 2);
  EXPECT_EQ(line.sampling.prompt_logprobs, 1);
  EXPECT_EQ(line.sampling.n, 2U);
  const nlohmann::ordered_json& chat = *line.chat;
  EXPECT_EQ(chat["messages"][0]["content"], "Hi");
  EXPECT_EQ(chat["tools"][0]["type"], "function");
  EXPECT_EQ(chat["chat_template_kwargs"]["enable_thinking"], false);
  EXPECT_FALSE(parsed(chat_line({{"logprobs", false}})).sampling.logprobs);
}

TEST(BatchRequest, MayHaveOnePromptInAListNoModelAndNoToolsToChoose) {
  EXPECT_EQ(parsed(completion_line(json::parse(R"({"prompt": ["x"]})"))).prompt, "x");
  EXPECT_EQ(parsed(completion_line(json::parse(R"({"prompt": [[3, 4]]})"))).tokens,
            (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(parsed(completion_line(json::parse(R"({"prompt": [3]})"))).tokens, std::vector<int32_t>{3});
  EXPECT_EQ(parsed(completion_line(json::parse(R"({"model": null})"))).label.model, "");
  for (const char* tools : {R"({"tool_choice": "none"})", R"({"tool_choice": "none", "tools": []})",
                            R"({"tool_choice": "none", "tools": null})", R"({"tool_choice": "auto"})"})
    EXPECT_NO_THROW(parsed(chat_line(json::parse(tools)))) << tools;
}

TEST(BatchRequest, GivesTemplatesTheArgumentsOfEarlierCallsAsObjects) {
  const auto arguments = [](const json& text) {
    const json call = {{"id", "1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", text}}}};
    const json messages = {{{"role", "user"}, {"content", "Hi"}},
                           {{"role", "assistant"}, {"tool_calls", {call}}}};
    return (*parsed(chat_line({{"messages", messages}}))
                 .chat)["messages"][1]["tool_calls"][0]["function"]["arguments"];
  };
  EXPECT_EQ(arguments(R"({"b": 1, "a": {"c": [2]}})").dump(), R"({"b":1,"a":{"c":[2]}})");
  EXPECT_EQ(arguments("").dump(), "{}");
  for (const char* text : {"[1]", "7", "null", "{\"b\": 1", "no JSON", "{\"b\": 1} x"})
    EXPECT_EQ(arguments(text), text);
  EXPECT_EQ(arguments({{"b", 1}}).dump(), R"({"b":1})");
  const std::string deep(100'000, '[');
  EXPECT_EQ(arguments("{\"a\": " + deep), "{\"a\": " + deep);
}

TEST(BatchRequest, OfAChatMaySayWhetherThoughtsGoApart) {
  EXPECT_EQ(parsed(chat_line({{"reasoning", "split"}})).reasoning, "auto");
  EXPECT_FALSE(parsed(chat_line(json::object())).reasoning);
  expect_batch_refusal(completion_line({{"reasoning", "split"}}), "unknown field \"reasoning\"");
}

TEST(BatchRequest, OfAChatMaySayHowMuchToThink) {
  for (const char* effort : {"none", "minimal", "low", "medium", "high", "xhigh"})
    EXPECT_EQ((*parsed(chat_line({{"reasoning_effort", effort}})).chat)["reasoning_effort"], effort);
  EXPECT_NO_THROW(parsed(chat_line({{"reasoning_effort", nullptr}})));
  expect_batch_refusal(
      chat_line({{"reasoning_effort", "hihg"}}),
      "body.reasoning_effort is \"hihg\"; supported: none, minimal, low, medium, high, xhigh");
}

TEST(BatchRequest, EveryFieldIsHonouredOrRefusedByName) {
  for (const json& asked : std::vector<json>{{{"suffix", "x"}},
                                             {{"use_beam_search", true}},
                                             {{"length_penalty", 0.5}},
                                             {{"guided_json", json::object()}},
                                             {{"guided_regex", "a+"}},
                                             {{"guided_choice", {"a"}}},
                                             {{"guided_grammar", "x"}},
                                             {{"structured_outputs", {{"json", "{}"}}}},
                                             {{"skip_special_tokens", false}},
                                             {{"return_token_ids", true}},
                                             {{"truncate_prompt_tokens", 5}},
                                             {{"response_format", {{"type", "json_object"}}}}})
    expect_batch_refusal(completion_line(asked), "body." + asked.items().begin().key() + " is ");
  for (const json& asked : std::vector<json>{{{"tool_choice", "required"}},
                                             {{"echo", true}},
                                             {{"tool_choice", {{"type", "function"}}}},
                                             {{"parallel_tool_calls", false}},
                                             {{"functions", json::array()}},
                                             {{"function_call", "auto"}},
                                             {{"modalities", {"text", "audio"}}},
                                             {{"web_search_options", json::object()}},
                                             {{"continue_final_message", true}},
                                             {{"chat_template", "x"}},
                                             {{"response_format", {{"type", "json_object"}}}}})
    expect_batch_refusal(chat_line(asked), "body." + asked.items().begin().key() + " is ");
  expect_batch_refusal(chat_line({{"prompt", "x"}}), "unknown field \"prompt\"");
  expect_batch_refusal(completion_line({{"messages", json::array()}}), "unknown field \"messages\"");
  expect_batch_refusal(completion_line({{"reasoning_effort", "low"}}), "unknown field \"reasoning_effort\"");
  expect_batch_refusal(completion_line({{"max_token", 1}}), "did you mean \"max_tokens\"?");
}

TEST(BatchRequest, FieldsThatCannotChangeTheAnswerAreIgnoredAndThoseOfOtherFeaturesAtTheirDefaults) {
  const json ignored = {{"user", "u"},
                        {"metadata", {{"a", "b"}}},
                        {"store", true},
                        {"stream", true},
                        {"stream_options", {{"include_usage", true}}},
                        {"service_tier", "flex"},
                        {"safety_identifier", "s"},
                        {"prompt_cache_key", "k"},
                        {"prompt_cache_retention", "24h"},
                        {"prediction", {{"type", "content"}, {"content", "x"}}},
                        {"priority", 3},
                        {"request_id", "r"},
                        {"cache_salt", "c"}};
  for (const json& line : {completion_line(ignored), chat_line(ignored)}) {
    std::vector<std::string> names = parsed(line).ignored;
    std::ranges::sort(names);
    std::vector<std::string> given;
    for (const auto& [name, value] : ignored.items()) given.push_back(name);
    EXPECT_EQ(names, given);
  }
  EXPECT_TRUE(parsed(chat_line({{"stream", false}, {"store", false}, {"user", nullptr}})).ignored.empty());
  const json defaults = json::parse(
      R"({"use_beam_search": false, "length_penalty": 1.0, "guided_json": null, "guided_choice": null, "structured_outputs": null,
          "response_format": {"type": "text"}, "skip_special_tokens": true, "spaces_between_special_tokens": true, "echo": false,
          "include_stop_str_in_output": false, "truncate_prompt_tokens": null, "return_token_ids": false})");
  EXPECT_NO_THROW(parsed(completion_line(defaults)));
  json chat = defaults;
  chat.update(json::parse(
      R"({"modalities": ["text"], "functions": null, "continue_final_message": false, "include_reasoning": true,
      "add_generation_prompt": true, "documents": [], "logprobs": false, "top_logprobs": 0})"));
  EXPECT_NO_THROW(parsed(chat_line(chat)));
}

TEST(BatchRequest, NumbersOutOfRangeFailTheRequestAlone) {
  EXPECT_EQ(parsed(completion_line({{"logprobs", 20}})).error, "");
  EXPECT_EQ(parsed(completion_line({{"logprobs", 21}})).error, "logprobs (21) must be from 0 to 20");
  EXPECT_EQ(parsed(chat_line({{"logprobs", true}, {"top_logprobs", 21}})).error,
            "top_logprobs (21) must be from 0 to 20");
  EXPECT_EQ(parsed(chat_line({{"logprobs", true}, {"top_logprobs", -1}})).error,
            "top_logprobs (-1) must be from 0 to 20");
  EXPECT_EQ(parsed(completion_line({{"best_of", 3}, {"n", 2}})).error,
            "best_of (3) must be n (2): none of the answers is left out");
  EXPECT_EQ(parsed(completion_line({{"best_of", 2}})).error,
            "best_of (2) must be n (1): none of the answers is left out");
  for (const json& line : {completion_line({{"prompt_logprobs", 21}}), chat_line({{"prompt_logprobs", 21}})})
    EXPECT_EQ(parsed(line).error, "prompt_logprobs (21) must be from 0 to 20");
  EXPECT_EQ(parsed(completion_line({{"n", -1}})).error, "n (-1) must be from 0 to 4294967295");
  expect_batch_refusal(completion_line({{"n", "2"}}), "body.n is \"2\"");
  expect_batch_refusal(completion_line({{"echo", 1}}), "body.echo is 1");
  EXPECT_NE(parsed(chat_line({{"max_completion_tokens", -1}})).error, "");
  EXPECT_NE(parsed(chat_line({{"seed", -1}})).error, "");
  expect_batch_refusal(chat_line({{"max_completion_tokens", "9"}}), "body.max_completion_tokens is \"9\"");
  expect_batch_refusal(chat_line({{"seed", 0.5}}), "body.seed is 0.5");
  expect_batch_refusal(chat_line({{"stop", {"a", ""}}}), "body.stop is");
  expect_batch_refusal(chat_line({{"logprobs", 1}}), "body.logprobs is 1");
  expect_batch_refusal(completion_line({{"logprobs", true}}), "body.logprobs is true");
}

TEST(BatchRequest, IsRefusedWithItsLine) {
  const auto without = [](const char* name) {
    json line = completion_line();
    line.erase(name);
    return line;
  };
  expect_batch_refusal(without("body"), "body is missing");
  expect_batch_refusal(without("custom_id"), "custom_id is missing");
  expect_batch_refusal(without("url"), "url is missing");
  json other = completion_line();
  other["url"] = "/v1/embeddings";
  expect_batch_refusal(other, "url is \"/v1/embeddings\"; supported: /v1/completions");
  other = completion_line();
  other["method"] = "GET";
  expect_batch_refusal(other, "method is \"GET\"");
  other["more"] = 1;
  expect_batch_refusal(other, "unknown field \"more\"");
  expect_batch_refusal(completion_line({{"model", 5}}), "body.model is 5");
  expect_batch_refusal(completion_line(json::parse(R"({"prompt":null})")), "body.prompt is missing");
  expect_batch_refusal(completion_line({{"prompt", {"a", "b"}}}), "body.prompt is");
  expect_batch_refusal(completion_line({{"prompt", {1, "b"}}}), "body.prompt is");
  expect_batch_refusal(completion_line({{"prompt", {-1}}}), "token id");
  expect_batch_refusal(chat_line({{"tool_choice", "none"}, {"tools", {{{"type", "function"}}}}}),
                       "body.tool_choice is");
  expect_batch_refusal(chat_line({{"messages", json::array()}}), "body.messages is []");
  expect_batch_refusal(chat_line({{"top_logprobs", 2}}), "body.top_logprobs is 2");
  expect_batch_refusal(chat_line({{"max_tokens", 2}, {"max_completion_tokens", 3}}),
                       "max_completion_tokens is 3");
  expect_batch_refusal(chat_line({{"user", 5}}), "body.user is 5");
}

FinishedRequest scored() {
  FinishedRequest done;
  Answer& answer = done.answers.emplace_back();
  answer.text = "a\"b";
  answer.tokens = {3, 4};
  answer.scores = {{-0.5F, {{3, -0.5F}, {9, -1.5F}}}, {-1, {}}};
  answer.reason = FinishReason::length;
  done.prompt_tokens = 5;
  return done;
}

TEST(BatchResult, OfACompletionIsTheseBytes) {
  const RequestLabel label{"\"a\"", RequestShape::completion, "m", 7};
  EXPECT_EQ(
      result_line(label, scored(), nullptr),
      R"({"id":"batch_req_18f580383ca83dec","custom_id":"a","response":{"status_code":200,"request_id":"req_18f580383ca83dec",)"
      R"("body":{"id":"cmpl-18f580383ca83dec","object":"text_completion","created":0,"model":"m","choices":[{"index":0,"text":"a\"b",)"
      R"("logprobs":{"tokens":["token_id:3","token_id:4"],"token_logprobs":[-0.5,-1],"top_logprobs":[{"token_id:3":-0.5,"token_id:9":-1.5},{}],)"
      R"("text_offset":[0,0]},"finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}},"error":null})");
}

TEST(BatchResult, OfAChatHasTheFieldsOfAChat) {
  const json line = json::parse(result_line({"\"a\"", RequestShape::chat, "m", 7}, scored(), nullptr));
  const json& body = line["response"]["body"];
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"], (json{{"role", "assistant"}, {"content", "a\"b"}}));
  const json& scores = body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[0]["top_logprobs"][1]["logprob"], -1.5);
  EXPECT_EQ(scores[0]["bytes"].size(), std::string("token_id:3").size());
  FinishedRequest bare = scored();
  bare.answers[0].scores.clear();
  EXPECT_TRUE(json::parse(result_line({"\"a\"", RequestShape::chat, "m", 7}, bare,
                                      nullptr))["response"]["body"]["choices"][0]["logprobs"]
                  .is_null());
}

FinishedRequest scored_prompt(int32_t first) {
  FinishedRequest done = scored();
  done.prompt = {first, 8, 9};
  done.prompt_scores.resize(2);
  done.prompt_scores[0].logprob = -2;
  done.prompt_scores[0].alternatives = {{8, -2}, {7, -3}};
  done.prompt_scores[1].logprob = -0.25F;
  return done;
}

json body_of(const RequestLabel& label, const FinishedRequest& done, const Tokenizer* tokenizer = nullptr) {
  return json::parse(result_line(label, done, tokenizer))["response"]["body"];
}

TEST(BatchResult, OfSeveralAnswersHasAChoiceForEach) {
  FinishedRequest done = scored();
  done.answers.push_back(done.answers[0]);
  done.answers[1].text = "c";
  done.answers[1].reason = FinishReason::stop;
  for (const RequestShape shape : {RequestShape::completion, RequestShape::chat}) {
    const json body = body_of({"\"a\"", shape, "m", 7}, done);
    ASSERT_EQ(body["choices"].size(), 2U);
    for (uint32_t i = 0; i < 2; ++i) {
      const json& choice = body["choices"][i];
      EXPECT_EQ(choice["index"], i);
      EXPECT_EQ(choice["seed"], answer_seed(7, i));
      EXPECT_EQ(choice["finish_reason"], i == 0 ? "length" : "stop");
      EXPECT_EQ(shape == RequestShape::chat ? choice["message"]["content"] : choice["text"],
                i == 0 ? "a\"b" : "c");
    }
    EXPECT_EQ(body["usage"], (json{{"prompt_tokens", 5}, {"completion_tokens", 4}, {"total_tokens", 9}}));
  }
}

TEST(BatchResult, ListsThePromptWhereVllmDoes) {
  RequestLabel label{"\"a\"", RequestShape::completion, "m", 7};
  label.prompt_logprobs = 1;
  const json listed = json::parse(
      R"([null, {"8": {"logprob": -2.0, "decoded_token": "token_id:8"}}, {"9": {"logprob": -0.25, "decoded_token": "token_id:9"}}])");
  const json body = body_of(label, scored_prompt(5));
  EXPECT_EQ(body["choices"][0]["prompt_logprobs"], listed) << "with as many alternatives as were asked for";
  label.prompt_logprobs = 2;
  EXPECT_EQ(body_of(label, scored_prompt(5))["choices"][0]["prompt_logprobs"][1]["7"]["logprob"], -3);
  label.shape = RequestShape::chat;
  EXPECT_EQ(body_of(label, scored_prompt(5))["prompt_logprobs"].size(), 3U);
  EXPECT_FALSE(body_of(label, scored_prompt(5))["choices"][0].contains("prompt_logprobs"));
  label.prompt_logprobs = -1;
  EXPECT_FALSE(body_of(label, scored_prompt(5)).contains("prompt_logprobs"));
}

Tokenizer style(const std::string& name) {
  return Tokenizer::from_json(
      ModelFiles(std::filesystem::path(MANIPLE_TEST_DATA) / "tokenizers" / name).text("tokenizer.json"));
}

TEST(BatchResult, OfAnEchoHasThePromptBeforeTheAnswerAlsoInTheListsOfTokens) {
  const Tokenizer tokenizer = style("llama3-style");
  RequestLabel label{"\"a\"", RequestShape::completion, "m", 7};
  label.echo = Echo{"Hé", 1};
  FinishedRequest done;
  done.prompt = tokenizer.encode("Hé", true);
  done.prompt_scores.resize(done.prompt.size() - 1);
  for (PromptScore& score : done.prompt_scores)
    score.alternatives = {{done.prompt[1], -1}, {done.prompt[0], -2}};
  Answer& answer = done.answers.emplace_back();
  answer.tokens = tokenizer.encode("ü!", false);
  answer.scores.resize(answer.tokens.size());
  answer.text = "ü";  // a stop string has cut it
  const json choice = body_of(label, done, &tokenizer)["choices"][0], &lists = choice["logprobs"];
  EXPECT_EQ(choice["text"], "Héü");
  const size_t prompt = done.prompt.size(), all = prompt + answer.tokens.size();
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(lists[list].size(), all) << list;
  EXPECT_EQ(lists["tokens"][0], *tokenizer.token_text(done.prompt[0]));
  EXPECT_TRUE(lists["token_logprobs"][0].is_null() && lists["top_logprobs"][0].is_null());
  EXPECT_EQ(lists["top_logprobs"][1].size(), 1U) << "no more than the answer lists";
  EXPECT_EQ(lists["token_logprobs"][prompt], 0);
  EXPECT_EQ(lists["text_offset"][0], 0) << "the tokenizer's own token stands before the text";
  EXPECT_EQ(lists["text_offset"][1], 0);
  EXPECT_EQ(lists["text_offset"][2], 1);
  EXPECT_EQ(lists["text_offset"][prompt], 2);
  EXPECT_EQ(lists["text_offset"][all - 1], 3) << "behind the text";

  label.echo->logprobs = -1;
  done.prompt.clear();
  done.prompt_scores.clear();
  answer.scores.clear();
  EXPECT_EQ(body_of(label, done, &tokenizer)["choices"][0]["text"], "Héü");
  EXPECT_TRUE(body_of(label, done, &tokenizer)["choices"][0]["logprobs"].is_null());
}

// Scoring, as OpenAI's clients ask for it.
TEST(BatchResult, OfAnEchoWithoutAnAnswerListsThePromptAlone) {
  RequestLabel label{"\"a\"", RequestShape::completion, "m", 7};
  label.echo = Echo{"Hi", 1};
  FinishedRequest done = scored_prompt(5);
  done.answers[0] = {};
  done.answers[0].reason = FinishReason::length;
  EXPECT_EQ(
      body_of(label, done)["choices"].dump(),
      R"([{"finish_reason":"length","index":0,"logprobs":{"text_offset":[0,0,0],"token_logprobs":[null,-2,-0.25],)"
      R"("tokens":["token_id:5","token_id:8","token_id:9"],"top_logprobs":[null,{"token_id:8":-2},{}]},"text":"Hi"}])");
}

TEST(BatchResult, CountsOffsetsInCharactersOfTheRealText) {
  for (const char* name : {"qwen-style", "mistral-v1-style", "llama3-style"}) {
    const Tokenizer tokenizer = style(name);
    FinishedRequest done;
    Answer& answer = done.answers.emplace_back();
    answer.text = "a 😀你 b";
    answer.tokens = tokenizer.encode(*answer.text, false);
    answer.scores.resize(answer.tokens.size());
    const json offsets = body_of({"\"a\"", RequestShape::completion, "m", 7}, done,
                                 &tokenizer)["choices"][0]["logprobs"]["text_offset"];
    EXPECT_EQ(offsets.front(), 0) << name;
    EXPECT_EQ(offsets.back(), 4) << name << offsets;
    std::set<size_t> begun;
    for (const json& offset : offsets) begun.insert(offset.get<size_t>());
    EXPECT_TRUE(begun.contains(2)) << name << offsets;
    EXPECT_LE(*begun.rbegin(), 4U) << name;
  }
}

TEST(BatchResult, OfAChatHasItsThoughtUnderBothNamesAndNoContentBeforeTheAnswer) {
  const auto message = [](const std::string& thought, const std::string& answer) {
    FinishedRequest done = scored();
    done.answers[0].reasoning = thought;
    done.answers[0].text = answer;
    const json line = json::parse(result_line({"\"a\"", RequestShape::chat, "m", 7}, done, nullptr));
    EXPECT_EQ(line["response"]["body"]["choices"][0]["finish_reason"], "length");
    return line["response"]["body"]["choices"][0]["message"];
  };
  const json role = {{"role", "assistant"}};
  const auto with = [&](json fields) { return fields.update(role), fields; };
  EXPECT_EQ(message("Add.", "4"),
            with({{"content", "4"}, {"reasoning", "Add."}, {"reasoning_content", "Add."}}));
  EXPECT_EQ(message("Ad", ""),
            with({{"content", nullptr}, {"reasoning", "Ad"}, {"reasoning_content", "Ad"}}));
  EXPECT_EQ(message("", "4"),
            with({{"content", "4"}, {"reasoning", nullptr}, {"reasoning_content", nullptr}}));
}

TEST(BatchResult, OfAChatHasCallsApartWhereTheFormatHasThem) {
  FinishedRequest done = scored();
  done.answers[0].reasoning = "Ask.";
  done.answers[0].text = "";
  done.answers[0].calls = {{"functions.clock", "{\"zone\": \"UTC\"}"}, {"browser.open", ""}};
  const auto choice = [&](FinishReason reason) {
    done.answers[0].reason = reason;
    return json::parse(
        result_line({"\"a\"", RequestShape::chat, "m", 7}, done, nullptr))["response"]["body"]["choices"][0];
  };
  EXPECT_EQ(choice(FinishReason::stop)["message"]["tool_calls"], json::parse(R"([
      {"id": "call_0", "type": "function", "function": {"name": "clock", "arguments": "{\"zone\": \"UTC\"}"}},
      {"id": "call_1", "type": "function", "function": {"name": "browser.open", "arguments": ""}}])"));
  EXPECT_EQ(choice(FinishReason::stop)["message"]["content"], nullptr);
  EXPECT_EQ(choice(FinishReason::stop)["finish_reason"], "tool_calls");
  EXPECT_EQ(choice(FinishReason::length)["finish_reason"], "length");
}

TEST(BatchResult, OfARefusedRequestSaysWhy) {
  FinishedRequest refused;
  refused.error = "the prompt is empty";
  const json line = json::parse(result_line({"\"a\"", RequestShape::chat, "m", 7}, refused, nullptr));
  EXPECT_EQ(line["custom_id"], "a");
  EXPECT_TRUE(line["response"].is_null());
  EXPECT_EQ(line["error"]["message"], "the prompt is empty");
}

}  // namespace
}  // namespace maniple
