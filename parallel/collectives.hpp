// Collective operations on bytes, over any transport.
#pragma once

#include <parallel/transport.hpp>

#include <string>
#include <vector>

namespace maniple {

// parts[r] receives the bytes of rank r. The sizes agree on all ranks. The caller fills this rank's own part.
void all_gather(Transport& transport, std::span<const std::span<std::byte>> parts);

// The size agrees on all ranks. Few bytes go along a binomial tree. Many bytes go in pieces along a chain,
// where each rank sends them at most once.
void broadcast(Transport& transport, std::span<std::byte> bytes, int root);

// For bytes whose number the receivers do not know. all_gather_bytes returns them by rank. For start-up.
void broadcast_bytes(Transport& transport, std::string& bytes, int root);
std::vector<std::string> all_gather_bytes(Transport& transport, std::string_view bytes);

void barrier(Transport& transport);

}  // namespace maniple
