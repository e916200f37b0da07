// A request while rank 0 serves it. One rule, "start at num_computed, compute the next tokens", covers
// prompts, chunks, prefix hits, decoding and readmission after preemption (as in nano-vLLM's Sequence).
#pragma once

#include <kernels/support/sampling_params.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <runtime/scheduling/step_plan.hpp>
#include <vector>

namespace maniple {

using RequestId = uint64_t;

enum class SequenceStatus : uint8_t { waiting, running, finished };
enum class FinishReason : uint8_t { none, stop, length, abort, not_finite };  // the last: a logit was not

// The part of a sequence that is published for prefix reuse: its first `blocks` blocks. The last of them has
// `hash`; `serial` is that of the published block with the same content, which may belong to another
// sequence. Only BlockManager uses it.
struct PrefixChain {
  size_t blocks = 0;
  std::optional<uint64_t> hash;
  uint64_t serial = 0;
};

struct Sequence {
  RequestId id = 0;             // of its request
  uint32_t index = 0;           // among the sequences of the request, one for each answer
  std::vector<int32_t> tokens;  // prompt, then completion as far as it is committed; a stop token is kept
  uint32_t num_prompt_tokens = 0;
  SamplingParams sampling;
  // Others of its request, or with its key, have the first num_shared tokens too: it waits while one of them computes these, and then finds them
  // in the cache, also what fills no block.
  bool shares_prompt = false;
  uint32_t num_shared = 0;
  uint64_t shared_key = 0;             // 0: none
  uint32_t first_scored = UINT32_MAX;  // the first row of the prompt whose score is wanted and not committed
  SequenceStatus status = SequenceStatus::waiting;
  FinishReason finish_reason = FinishReason::none;
  uint32_t num_cached = 0;    // tokens whose KV was there at admission: it never writes it
  uint32_t num_computed = 0;  // tokens whose KV is present
  uint32_t num_known = 0;  // tokens at admission: the plan carries them; later ones were sampled in this seat
  Seat seat = 0;           // while running
  // In plans that are not committed:
  uint32_t num_computing = 0;  // tokens whose KV they write
  uint32_t num_sampling = 0;   // tokens that they append
  uint32_t num_scoring = 0;    // rows that they score
  BlockTable blocks;
  BlockTable window_blocks;  // of layers with a window, as far as tokens are planned; -1: it never had one
  size_t first_window_block = 0;  // that it holds; those before it may have other tokens by now
  PrefixChain chain;

  uint32_t num_tokens() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t num_completion_tokens() const { return num_tokens() - num_prompt_tokens; }
  // Once all plans have run:
  uint32_t planned_computed() const { return num_computed + num_computing; }
  uint32_t planned_tokens() const { return num_tokens() + num_sampling; }
  bool decoding() const { return planned_computed() >= num_known; }
  // Tokens to compute before the next one; without a next one the last is no input.
  uint32_t num_inputs() const { return samples() ? num_tokens() : std::max(num_tokens() - 1, 1U); }
  // Tokens that need not be computed with such a prefix: not the last one, of which a row comes.
  uint32_t computed_with(uint32_t prefix) const { return std::min(prefix, num_tokens() - 1); }
  bool samples() const { return sampling.max_tokens > 0; }
  bool has_prompt_of(const Sequence& other) const {
    return id == other.id || (shared_key != 0 && shared_key == other.shared_key);
  }
  bool scores() const { return first_scored < num_prompt_tokens - 1; }
  // The rows, up to position `end`, that the next query scores: row i is against token i + 1 of the prompt.
  uint32_t rows_scored(uint32_t end) const {
    if (!scores()) return 0;
    const uint32_t first = std::max(planned_computed(), first_scored + num_scoring),
                   last = std::min(end, num_prompt_tokens - 1);
    return last > first ? last - first : 0;
  }
  // How many leading tokens a cache may give. Where it gives all, the last one is computed again: a row comes of it.
  uint32_t most_cached() const {
    return scores() ? first_scored : shares_prompt && samples() ? num_tokens() : num_inputs() - 1;
  }
};

}  // namespace maniple
