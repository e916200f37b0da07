// Until the ranks watch each other nobody does: a rank that never comes would let the others wait for ever,
// within MPI_Init or in what they agree on before the watch.
#pragma once

#include <chrono>
#include <thread>

namespace maniple {

// Ends this process with ExitCode::fault unless destroyed in time. Rank 0 says why; the others wait a little
// longer, so that it is said first.
class StartDeadline {
 public:
  explicit StartDeadline(int rank, std::chrono::seconds limit = std::chrono::seconds(300));

 private:
  std::jthread thread_;
};

}  // namespace maniple
