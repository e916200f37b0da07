#include <parallel/collectives.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace maniple {

namespace {

constexpr size_t small_broadcast = size_t{64} << 10;
constexpr size_t chain_piece = size_t{1} << 20;

std::span<std::byte> bytes_of(auto& object) { return std::as_writable_bytes(std::span(&object, 1)); }

// The distance of this rank from the root.
int rank_from(const Transport& transport, int root) {
  return (transport.rank() - root + transport.size()) % transport.size();
}
int world_rank(const Transport& transport, int root, int place) { return (place + root) % transport.size(); }

void broadcast_along_tree(Transport& transport, std::span<std::byte> bytes, int root) {
  const int place = rank_from(transport, root);
  for (int distance = 1; distance < transport.size(); distance *= 2) {
    if (place < distance && place + distance < transport.size()) {
      const Outgoing outgoing{world_rank(transport, root, place + distance), bytes};
      transport.exchange({&outgoing, 1}, {});
    } else if (distance <= place && place < 2 * distance) {
      const Incoming incoming{world_rank(transport, root, place - distance), bytes};
      transport.exchange({}, {&incoming, 1});
    }
  }
}

// Each rank passes a piece on while it receives the next.
void broadcast_along_chain(Transport& transport, std::span<std::byte> bytes, int root) {
  const int place = rank_from(transport, root);
  const bool first = place == 0, last = place + 1 == transport.size();
  const size_t pieces = (bytes.size() + chain_piece - 1) / chain_piece;
  const auto piece = [&](size_t i) {
    return bytes.subspan(i * chain_piece, std::min(chain_piece, bytes.size() - i * chain_piece));
  };
  for (size_t step = 0; step <= pieces; ++step) {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    if (!last && step > 0) outgoing.push_back({world_rank(transport, root, place + 1), piece(step - 1)});
    if (!first && step < pieces) incoming.push_back({world_rank(transport, root, place - 1), piece(step)});
    transport.exchange(outgoing, incoming);
  }
}

}  // namespace

void all_gather(Transport& transport, std::span<const std::span<std::byte>> parts) {
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int peer = 0; peer < transport.size(); ++peer) {
    if (peer == transport.rank()) continue;
    outgoing.push_back({peer, parts[transport.rank()]});
    incoming.push_back({peer, parts[peer]});
  }
  transport.exchange(outgoing, incoming);
}

void broadcast(Transport& transport, std::span<std::byte> bytes, int root) {
  if (bytes.size() <= small_broadcast)
    broadcast_along_tree(transport, bytes, root);
  else
    broadcast_along_chain(transport, bytes, root);
}

void broadcast_bytes(Transport& transport, std::string& bytes, int root) {
  uint64_t size = bytes.size();
  broadcast(transport, bytes_of(size), root);
  bytes.resize(size);
  broadcast(transport, std::as_writable_bytes(std::span(bytes)), root);
}

// Gathers on rank 0, which broadcasts everything in one piece: a large job opens few connections.
std::vector<std::string> all_gather_bytes(Transport& transport, std::string_view bytes) {
  std::vector<uint64_t> sizes(transport.size(), bytes.size());
  const auto to_root = [&](std::span<const std::byte> mine, auto part_of) {
    std::vector<Incoming> incoming;
    const Outgoing outgoing{0, mine};
    if (transport.rank() != 0) return transport.exchange({&outgoing, 1}, {});
    for (int peer = 1; peer < transport.size(); ++peer) incoming.push_back({peer, part_of(peer)});
    transport.exchange({}, incoming);
  };
  to_root(bytes_of(sizes[transport.rank()]), [&](int peer) { return bytes_of(sizes[peer]); });
  broadcast(transport, std::as_writable_bytes(std::span(sizes)), 0);

  std::vector<uint64_t> starts(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), starts.begin(), uint64_t{0});
  std::string all(starts.back() + sizes.back(), '\0');
  const std::span<std::byte> places = std::as_writable_bytes(std::span(all));
  to_root(std::as_bytes(std::span(bytes)),
          [&](int peer) { return places.subspan(starts[peer], sizes[peer]); });
  if (transport.rank() == 0) bytes.copy(all.data(), bytes.size());
  broadcast(transport, places, 0);

  std::vector<std::string> parts;
  for (size_t peer = 0; peer < sizes.size(); ++peer) parts.push_back(all.substr(starts[peer], sizes[peer]));
  return parts;
}

// Dissemination barrier: after the round of distance d, every rank has heard from 2 d ranks.
void barrier(Transport& transport) {
  const int rank = transport.rank(), size = transport.size();
  std::byte sent{}, received{};
  for (int distance = 1; distance < size; distance *= 2) {
    const Outgoing outgoing{(rank + distance) % size, {&sent, 1}};
    const Incoming incoming{(rank - distance + size) % size, {&received, 1}};
    transport.exchange({&outgoing, 1}, {&incoming, 1});
  }
}

}  // namespace maniple
