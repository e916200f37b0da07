#include <kernels/backend.hpp>
#include <kernels/factory/make_backend.hpp>
#include <kernels/support/host_memory.hpp>
#include <launch/preflight/facts.hpp>
#include <runtime/start/start.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace maniple {

namespace fs = std::filesystem;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ResourceLimit, soft, hard)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuFacts, uuid, bus, numa_node, peers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Subnet, interface, network)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StorageFacts, path, file_system, writable, free_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClockReading, middle, slack)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, cpus, cpus_of_node, cpu_paths, numa_nodes, locked_memory,
                                   open_files, core_size, huge_pages, free_memory, shared_memory,
                                   memory_limit, free_addresses, addresses, fabric, subnets, gpus,
                                   gpus_of_node, reads_processes, versions, clock, run_dir, weight_bytes,
                                   kv_bytes)

namespace {

// Open MPI reads long messages from the memory of a rank on the node. Containers that forbid it forbid it for a process's own memory too.
bool reads_processes() {
  const char* const transports = std::getenv("OMPI_MCA_btl");
  const char* const copies = std::getenv("OMPI_MCA_btl_vader_single_copy_mechanism");
  if (transports && std::string_view(transports).find("vader") == std::string_view::npos) return true;
  if (copies && std::string_view(copies) != "cma") return true;
  char from = 1, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1;
}

// Names in a folder, sorted; none if there is no such folder.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, missing))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

std::vector<int> numa_nodes_of(const std::vector<int>& cpus, const fs::path& root) {
  const fs::path folder = root / "sys/devices/system/node";
  std::vector<int> nodes;
  for (const std::string& name : names_in(folder)) {
    int node = 0;
    if (std::sscanf(name.c_str(), "node%d", &node) == 1 &&
        std::ranges::find_first_of(cpus, cpus_in(folder / name / "cpulist")) != cpus.end())
      nodes.push_back(node);
  }
  std::ranges::sort(nodes);
  return nodes;
}

ResourceLimit limit_of(__rlimit_resource resource) {
  struct rlimit limit {};
  ::getrlimit(resource, &limit);
  return {limit.rlim_cur, limit.rlim_max};
}

std::vector<std::string> active_fabric(const fs::path& root) {
  std::vector<std::string> active = names_in(root / "sys/class/cxi");
  const fs::path devices = root / "sys/class/infiniband";
  for (const std::string& device : names_in(devices))
    for (const std::string& port : names_in(devices / device / "ports"))
      if (first_line(devices / device / "ports" / port / "state").ends_with("ACTIVE"))
        active.push_back(fmt::format("{}/{}", device, port));
  return active;
}

// Bridges of containers and virtual machines: the same
// networks on every node, but no connection between nodes.
bool is_local(const std::string& interface) {
  constexpr std::array prefixes = {"lo", "docker", "br-", "virbr", "veth", "cni", "podman"};
  return std::ranges::any_of(prefixes, [&](const char* prefix) { return interface.starts_with(prefix); });
}

// Routes without a gateway; addresses are in the machine's byte order.
std::vector<Subnet> reachable_subnets(const fs::path& root) {
  std::ifstream file(root / "proc/net/route");
  std::vector<Subnet> subnets;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string interface;
    uint32_t network = 0, gateway = 0, flags = 0, mask = 0, ignored = 0;
    fields >> interface >> std::hex >> network >> gateway >> flags >> ignored >> ignored >> ignored >> mask;
    if (!fields || gateway != 0 || mask == 0 || is_local(interface)) continue;
    subnets.push_back({interface, fmt::format("{}.{}.{}.{}/{}", network & 255, network >> 8 & 255,
                                              network >> 16 & 255, network >> 24, std::popcount(mask))});
  }
  return subnets;
}

std::vector<GpuFacts> visible_gpu_facts(const fs::path& root) {
  std::vector<GpuFacts> gpus;
  for (const GpuIdentity& gpu : identify_gpus()) {
    const std::string node = first_line(root / "sys/bus/pci/devices" / gpu.bus / "numa_node");
    gpus.push_back({gpu.uuid, gpu.bus, node.empty() ? -1 : std::stoi(node), gpu.peers});
  }
  return gpus;
}

// Hash of the size and the first 16 MiB, which hold a library's build id: enough to distinguish two builds.
std::string hash_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(size_t{16} << 20, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return fmt::format("{:016x}", XXH64(bytes.data(), static_cast<size_t>(file.gcount()), size));
}

// Versions of the program and of the loaded libraries that must match between ranks.
std::map<std::string, std::string> loaded_versions(const fs::path& root) {
  constexpr std::array libraries = {"libmpi", "libnccl", "libcuda", "libcudart", "libcublasLt"};
  std::map<std::string, std::string> versions{
      {"maniple", fmt::format("{} {}", MANIPLE_VERSION, hash_of(root / "proc/self/exe"))}};
  std::ifstream maps(root / "proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t begin = line.find('/');
    if (begin == std::string::npos) continue;
    const fs::path path = line.substr(begin);
    const std::string file = path.filename(), name = file.substr(0, file.find(".so"));
    if (std::ranges::find(libraries, name) != libraries.end() && !versions.contains(name))
      versions[name] = fmt::format("{} {}", file, hash_of(root / path.relative_path()));
  }
  return versions;
}

// Takes the longest mount point that contains the path; of several mounts there, the last.
std::string file_system_of(const fs::path& path, const fs::path& root) {
  std::ifstream mounts(root / "proc/self/mounts");
  std::string found;
  size_t longest = 0;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string device, point, type;
    fields >> device >> point >> type;
    const fs::path relative = path.lexically_relative(point);
    if (relative.empty() || *relative.begin() == ".." || point.size() < longest) continue;
    longest = point.size();
    found = type;
  }
  return found;
}

}  // namespace

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<int> cpus_in(const fs::path& path) {
  std::vector<int> cpus;
  std::istringstream parts(first_line(path));
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0;
    const int fields = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    for (int cpu = first; fields > 0 && cpu <= (fields == 2 ? last : first); ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

RankFacts read_facts(const fs::path& root) {
  RankFacts facts;
  facts.cpus = own_cpus();
  facts.cpus_of_node = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  for (const CpuPath path : available_cpu_paths()) facts.cpu_paths.emplace_back(name_of(path));
  facts.numa_nodes = numa_nodes_of(facts.cpus, root);
  facts.locked_memory = limit_of(RLIMIT_MEMLOCK);
  facts.open_files = limit_of(RLIMIT_NOFILE);
  facts.core_size = limit_of(RLIMIT_CORE);
  facts.huge_pages =
      first_line(root / "sys/kernel/mm/transparent_hugepage/enabled").find("[never]") == std::string::npos;
  const HostMemory memory = host_memory(root);
  facts.free_memory = memory.free;
  facts.memory_limit = memory.limit;
  facts.addresses = limit_of(RLIMIT_AS);
  facts.free_addresses = free_addresses();
  facts.shared_memory = read_storage(root / "dev/shm", root).free_bytes;
  facts.fabric = active_fabric(root);
  facts.subnets = reachable_subnets(root);
  facts.gpus = visible_gpu_facts(root);
  facts.gpus_of_node = static_cast<int>(names_in(root / "proc/driver/nvidia/gpus").size());
  facts.reads_processes = reads_processes();
  facts.versions = loaded_versions(root);
  return facts;
}

StorageFacts read_storage(const fs::path& path, const fs::path& root) {
  std::error_code ignored;
  fs::path there = fs::absolute(path);
  while (!fs::exists(there, ignored) && there != there.root_path()) there = there.parent_path();
  StorageFacts facts;
  facts.path = there;
  facts.file_system = file_system_of(there, root);
  facts.writable = ::access(there.c_str(), W_OK) == 0;
  struct statvfs storage {};
  if (::statvfs(there.c_str(), &storage) == 0)
    facts.free_bytes = uint64_t{storage.f_bavail} * storage.f_frsize;
  return facts;
}

// The first barrier lets all ranks arrive together, so the second is short. No rank
// leaves the second before all have entered it: the intervals of any two ranks overlap.
ClockReading read_clock(World& world) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  world.barrier();
  const double before = now();
  world.barrier();
  const double after = now();
  return {(before + after) / 2, (after - before) / 2};
}

std::vector<RankFacts> gather_facts(World& world, const RankFacts& mine) {
  std::string bytes;
  nlohmann::json::to_cbor(nlohmann::json(mine), bytes);
  std::vector<RankFacts> facts;
  for (const std::string& theirs : world.all_gather_bytes(bytes))
    facts.push_back(nlohmann::json::from_cbor(theirs).get<RankFacts>());
  return facts;
}

}  // namespace maniple
