// What a rank knows of itself and its machine before anything is loaded. The checks compare these facts.
#pragma once

#include <parallel/world.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace maniple {

// In bytes or numbers; the largest value: unlimited.
struct ResourceLimit {
  static constexpr uint64_t unlimited = std::numeric_limits<uint64_t>::max();
  uint64_t soft = unlimited;
  uint64_t hard = unlimited;
};

struct GpuFacts {
  std::string uuid;
  std::string bus;
  int numa_node = -1;              // -1: not known
  std::vector<std::string> peers;  // uuids of visible GPUs whose memory it can address
};

// The network of an interface that is up.
struct Subnet {
  std::string interface;
  std::string network;  // "10.1.2.0/24"
};

// The storage of a path, or of its nearest parent that exists.
struct StorageFacts {
  std::string path;         // that parent, absolute; empty: there was none to look at
  std::string file_system;  // "lustre"; empty: not known
  bool writable = true;     // by this rank
  uint64_t free_bytes = ResourceLimit::unlimited;
};

// This rank's clock at a moment that all ranks share, in seconds since 1970, plus or minus `slack`.
struct ClockReading {
  double middle = 0;
  double slack = 0;
};

struct RankFacts {
  std::vector<int> cpus;  // allowed ones, ascending
  int cpus_of_node = 1;
  std::vector<std::string> cpu_paths;  // that its processor can run, best first
  std::vector<int> numa_nodes;         // of `cpus`
  ResourceLimit locked_memory, open_files, core_size;
  bool huge_pages = true;
  uint64_t free_memory = ResourceLimit::unlimited;
  uint64_t shared_memory = ResourceLimit::unlimited;   // free in /dev/shm
  uint64_t memory_limit = ResourceLimit::unlimited;    // of the job on this node
  uint64_t free_addresses = ResourceLimit::unlimited;  // that ulimit -v leaves to this rank
  ResourceLimit addresses;
  std::vector<std::string> fabric;  // active ports of InfiniBand and Slingshot: "mlx5_0/1"
  std::vector<Subnet> subnets;
  std::vector<GpuFacts> gpus;                   // visible ones
  int gpus_of_node = 0;                         // that its NVIDIA driver knows, visible or not
  bool reads_processes = true;                  // or Open MPI does not try to
  std::map<std::string, std::string> versions;  // of what must be the same everywhere
  ClockReading clock;
  StorageFacts run_dir;
  uint64_t weight_bytes = 0;  // that it will hold; 0: no model
  uint64_t kv_bytes = 0;      // at least
};

// Of a file in /proc or /sys; empty without it.
std::string first_line(const std::filesystem::path& path);
// "0-3,8": none without the file.
std::vector<int> cpus_in(const std::filesystem::path& path);

// Reads the facts of the machine. root: the folder of /proc and /sys, for tests.
RankFacts read_facts(const std::filesystem::path& root = "/");
// path: a real path, not below root. root: the folder of /proc.
StorageFacts read_storage(const std::filesystem::path& path, const std::filesystem::path& root = "/");

// Collective.
ClockReading read_clock(World& world);
std::vector<RankFacts> gather_facts(World& world, const RankFacts& mine);

}  // namespace maniple
