// A request while rank 0 serves it. One rule, "start at num_computed, compute the next tokens", covers
// prompts, chunks, prefix hits, decoding and readmission after preemption (as in nano-vLLM's Sequence).
#pragma once

#include <cstdint>
#include <kernels/support/sampling_params.hpp>
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
  RequestId id = 0;
  std::vector<int32_t> tokens;  // prompt, then completion as far as it is committed; a stop token is kept
  uint32_t num_prompt_tokens = 0;
  SamplingParams sampling;

  SequenceStatus status = SequenceStatus::waiting;
  FinishReason finish_reason = FinishReason::none;
  uint32_t num_computed = 0;  // tokens whose KV is present
  uint32_t num_known = 0;  // tokens at admission: the plan carries them; later ones were sampled in this seat
  Seat seat = 0;           // while running
  // In plans that are not committed:
  uint32_t num_computing = 0;  // tokens whose KV they write
  uint32_t num_sampling = 0;   // tokens that they append
  BlockTable blocks;
  PrefixChain chain;

  uint32_t num_tokens() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t num_completion_tokens() const { return num_tokens() - num_prompt_tokens; }
  // Once all plans have run:
  uint32_t planned_computed() const { return num_computed + num_computing; }
  uint32_t planned_tokens() const { return num_tokens() + num_sampling; }
  bool decoding() const { return planned_computed() >= num_known; }
};

}  // namespace maniple
