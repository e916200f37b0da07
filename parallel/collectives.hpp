// Collective operations on bytes, over any transport.
#pragma once

#include <parallel/transport.hpp>

#include <string>
#include <vector>

namespace maniple {

// parts[r] is rank r's, of the same sizes on all ranks; this rank's own is filled before the call.
void all_gather(Transport& transport, std::span<const std::span<std::byte>> parts);

// Few bytes go along a binomial tree, many in pieces along a chain, so that each rank sends them once at
// most.
void broadcast(Transport& transport, std::span<std::byte> bytes, int root);

// Bytes whose number only the root (or each rank) knows. Meant for start-up.
void broadcast_bytes(Transport& transport, std::string& bytes, int root);
std::vector<std::string> all_gather_bytes(Transport& transport, std::string_view bytes);

void barrier(Transport& transport);

}  // namespace maniple
