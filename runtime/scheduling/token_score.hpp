// Log-probabilities of what was generated: of the model's own distribution, before temperature and filters.
#pragma once

#include <cstdint>
#include <vector>

namespace maniple {

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0.0F;

  bool operator==(const TokenLogprob&) const = default;
};

struct TokenScore {
  float logprob = 0;
  std::vector<TokenLogprob> alternatives;  // likeliest first
};

// Of a token of the prompt, given those before it.
struct PromptScore : TokenScore {
  bool greedy = false;  // it is the token that a greedy draw takes
};

}  // namespace maniple
