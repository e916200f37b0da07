// Phases of a start that all ranks complete or none: every rank learns of any rank's failure
// before it goes on.
#pragma once

#include <parallel/world.hpp>

#include <cstring>
#include <functional>
#include <vector>

namespace maniple {

// A failure that all ranks have exchanged. Rank 0 throws it and exits with its code; the others throw
// SilentExit and exit with 0. Any other exception in a job of several ranks must end the whole job
// (World::abort), as the other ranks still wait.
class CollectiveError : public Error {
 public:
  explicit CollectiveError(const Error& error, int rank = 0) : Error(error), rank_(rank) {}
  int rank() const { return rank_; }  // that failed

 private:
  int rank_;
};
class SilentExit {
 public:
  explicit SilentExit(const Error& reason) : reason_(reason) {}
  const Error& reason() const { return reason_; }  // the failed rank's

 private:
  Error reason_;
};

// Collective. Runs `phase` on every rank. If any rank threw an Error, rank 0 throws that of the lowest such
// rank as CollectiveError. `phase` must not wait for other ranks after a point where it may throw.
void collective_phase(World& world, const std::function<void()>& phase);

// Collective. Returns the value of every rank, by rank.
template <typename T>
std::vector<T> gather_values(World& world, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> values;
  for (const std::string& bytes :
       world.all_gather_bytes({reinterpret_cast<const char*>(&mine), sizeof mine})) {
    require(bytes.size() == sizeof(T), "ranks gather different things");
    std::memcpy(&values.emplace_back(), bytes.data(), sizeof(T));
  }
  return values;
}

}  // namespace maniple
