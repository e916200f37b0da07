// Plans and results as bytes: one message of variable length. Layout: magic (4 bytes), version, kind, the
// fields in the order of their structs, XXH64 over all bytes before it. Integers are LEB128 varints in their
// shortest form; floats and hashes are little-endian.
#pragma once

#include <runtime/scheduling/step_plan.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace maniple {

inline constexpr size_t max_message_bytes = size_t{64} << 20;

// Throws Error (internal) if the message would exceed max_message_bytes, or if more than the last token of a
// query is unknown.
std::vector<std::byte> encode(const StepPlan& plan);
std::vector<std::byte> encode(const StepResult& result);

// Throws Error (fault) on anything that encode does not write. Allocates no more than a small
// multiple of the message.
StepPlan decode_plan(std::span<const std::byte> message);
StepResult decode_result(std::span<const std::byte> message);

// Writes the hash of all bytes before the last eight into these eight.
void write_checksum(std::span<std::byte> message);

}  // namespace maniple
