#include <runtime/checkpoint/stream_hash.hpp>

#include <xxhash.h>

namespace maniple {

StreamHash::StreamHash() : state_(XXH64_createState()) { XXH64_reset(state_.get(), 0); }

void StreamHash::add(std::span<const std::byte> bytes) {
  XXH64_update(state_.get(), bytes.data(), bytes.size());
}

uint64_t StreamHash::value() const { return XXH64_digest(state_.get()); }

void StreamHash::Free::operator()(XXH64_state_s* state) const { XXH64_freeState(state); }

}  // namespace maniple
