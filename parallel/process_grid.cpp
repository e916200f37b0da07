#include <kernels/support/check.hpp>
#include <parallel/divisors.hpp>
#include <parallel/process_grid.hpp>

namespace maniple {

namespace {

std::string remedy(int world_size, int pipeline_size) {
  if (world_size % pipeline_size == 0)
    return "use --tp " + alternatives(small_divisors(world_size / pipeline_size));
  return "use --pp " + alternatives(small_divisors(world_size));
}

}  // namespace

ProcessGrid ProcessGrid::of(int world_size, int tensor_size, int pipeline_size) {
  require(world_size > 0, "a job has at least one rank");
  if (tensor_size < 1)
    fail(ExitCode::usage, "--tp {} is not a number of ranks; use --tp 1 or more", tensor_size);
  if (pipeline_size < 1)
    fail(ExitCode::usage, "--pp {} is not a number of stages; use --pp 1 or more", pipeline_size);
  const int64_t replica_size = int64_t{tensor_size} * pipeline_size;
  if (world_size % replica_size != 0) {
    const std::string stages = pipeline_size > 1 ? fmt::format(" times --pp {}", pipeline_size) : "";
    fail(ExitCode::usage, "ranks ({}) do not divide by --tp {}{}; {}, or start a multiple of {} ranks",
         world_size, tensor_size, stages, remedy(world_size, pipeline_size), replica_size);
  }
  return ProcessGrid({tensor_size, pipeline_size, static_cast<int>(world_size / replica_size)});
}

GridPosition ProcessGrid::position(int rank) const {
  require(0 <= rank && rank < size_.ranks(), "a rank outside the grid");
  const int stage = rank / size_.tensor;
  return {rank % size_.tensor, stage % size_.pipeline, stage / size_.pipeline};
}

int ProcessGrid::rank(const GridPosition& position) const {
  return (position.data * size_.pipeline + position.pipeline) * size_.tensor + position.tensor;
}

std::vector<int> ProcessGrid::tensor_group(int rank) const {
  GridPosition place = position(rank);
  std::vector<int> ranks;
  for (place.tensor = 0; place.tensor < size_.tensor; ++place.tensor) ranks.push_back(this->rank(place));
  return ranks;
}

std::vector<int> ProcessGrid::pipeline_group(int rank) const {
  GridPosition place = position(rank);
  std::vector<int> ranks;
  for (place.pipeline = 0; place.pipeline < size_.pipeline; ++place.pipeline)
    ranks.push_back(this->rank(place));
  return ranks;
}

std::vector<int> ProcessGrid::data_group(int rank) const {
  GridPosition place = position(rank);
  std::vector<int> ranks;
  for (place.data = 0; place.data < size_.data; ++place.data) ranks.push_back(this->rank(place));
  return ranks;
}

std::vector<int> ProcessGrid::replica(int data) const {
  const int replica_size = size_.tensor * size_.pipeline;
  std::vector<int> ranks;
  for (int i = 0; i < replica_size; ++i) ranks.push_back(data * replica_size + i);
  return ranks;
}

int ProcessGrid::reporter(int data) const { return rank({0, size_.pipeline - 1, data}); }

}  // namespace maniple
