#include <runtime/checkpoint/stream_hash.hpp>

#include <xxhash.h>
#if MANIPLE_XXH_DISPATCH
// Makes XXH3_64bits_update choose by the processor: without it x86-64 has SSE2, at a third of the speed of AVX-512.
#include <xxh_x86dispatch.h>
#endif

namespace maniple {

StreamHash::StreamHash(HashKind kind) {
  if (kind == HashKind::xxh64) {
    auto& state = state_.emplace<0>(XXH64_createState());
    XXH64_reset(state.get(), 0);
  } else {
    auto& state = state_.emplace<1>(XXH3_createState());
    XXH3_64bits_reset(state.get());
  }
}

void StreamHash::add(std::span<const std::byte> bytes) {
  if (const auto* xxh3 = std::get_if<1>(&state_))
    XXH3_64bits_update(xxh3->get(), bytes.data(), bytes.size());
  else
    XXH64_update(std::get<0>(state_).get(), bytes.data(), bytes.size());
}

uint64_t StreamHash::value() const {
  if (const auto* xxh3 = std::get_if<1>(&state_)) return XXH3_64bits_digest(xxh3->get());
  return XXH64_digest(std::get<0>(state_).get());
}

void StreamHash::Free::operator()(XXH64_state_s* state) const { XXH64_freeState(state); }
void StreamHash::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

}  // namespace maniple
