// Plans and results as bytes: one message of variable length. Layout: magic (4 bytes), version, kind, then
// the fields in the order of their structs, then XXH64 over all before. Integers are LEB128 varints in their
// shortest form, floats and hashes little-endian.
#pragma once

#include <runtime/scheduling/step_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace maniple {

inline constexpr size_t max_message_bytes = size_t{64} << 20;

// Throws Error (internal) if the message would exceed max_message_bytes, or a query lacks more than its last
// token.
std::vector<std::byte> encode(const StepPlan& plan);
std::vector<std::byte> encode(const StepResult& result);

// Throws Error (fault) on anything that encode does not write. Allocates no more than a small multiple of the
// message.
StepPlan decode_plan(std::span<const std::byte> message);
StepResult decode_result(std::span<const std::byte> message);

// Makes the last eight bytes the hash of those before.
void seal(std::span<std::byte> message);

}  // namespace maniple
