// golden_requests MODEL_DIR EXPECTED: the golden prompts of a model as request lines on stdout; the tokens
// that they lead to, one line each, into the file EXPECTED.
#include <support/golden.hpp>

#include <iostream>

int main(int count, char** arguments) {
  if (count != 3) return 64;
  const auto golden = maniple::testing::read_golden(std::filesystem::absolute(arguments[1]));
  std::ofstream expected(arguments[2]);
  for (const auto& [prompt, tokens, logits] : golden.sequences) {
    const nlohmann::json request{{"tokens", prompt},
                                 {"max_tokens", tokens.size()},
                                 {"ignore_eos", true},
                                 {"temperature", 0},
                                 {"logprobs", 1}};
    std::cout << request << '\n';
    expected << nlohmann::json(tokens) << '\n';
  }
}
