#include <parallel/mpi/guest_world.hpp>
#include <parallel/mpi/mpi_mailbox.hpp>
#include <parallel/mpi/mpi_stage_transport.hpp>
#include <parallel/mpi/mpi_transport.hpp>
#include <parallel/mpi/mpi_world.hpp>
#include <parallel/nccl/nccl_groups.hpp>
#include <parallel/self/memory_mailbox.hpp>
#include <parallel/self/self_communicator.hpp>
#include <parallel/self/self_world.hpp>

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>

namespace maniple {

namespace {

// A rank's place on its node.
struct NodeRanks {
  int leader = 0;  // world rank of the node's lowest rank
  int local_rank = 0;
  int local_size = 1;
  int cpus = 1;  // all CPUs that the node's ranks may run on
};

NodeRanks find_node_ranks(MPI_Comm world) {
  NodeRanks found;
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_rank(world, &found.leader), "MPI_Comm_rank");
  check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, found.leader, MPI_INFO_NULL, &handle),
            "MPI_Comm_split_type");
  const UniqueComm node(handle);
  check_mpi(MPI_Comm_rank(node.get(), &found.local_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(node.get(), &found.local_size), "MPI_Comm_size");
  check_mpi(MPI_Bcast(&found.leader, 1, MPI_INT, 0, node.get()), "MPI_Bcast");
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof cpus, &cpus);
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &cpus, sizeof cpus, MPI_BYTE, MPI_BOR, node.get()), "MPI_Allreduce");
  found.cpus = CPU_COUNT(&cpus);
  return found;
}

std::vector<RankLocation> find_locations(Transport& world, const NodeRanks& mine) {
  const std::string card(reinterpret_cast<const char*>(&mine), sizeof mine);
  std::vector<RankLocation> locations;
  std::map<int, int> nodes;  // leader -> index; a leader comes before the other ranks of its node
  for (const std::string& its_card : all_gather_bytes(world, card + host_name())) {
    NodeRanks its;
    std::memcpy(&its, its_card.data(), sizeof its);
    const int node = nodes.try_emplace(its.leader, static_cast<int>(nodes.size())).first->second;
    locations.push_back({its_card.substr(sizeof its), node, its.local_rank, its.local_size});
  }
  return locations;
}

class MpiWorld : public World {
 public:
  MpiWorld(MPI_Comm job, FaultHandler on_fault, std::unique_ptr<NcclGroups> nccl)
      : MpiWorld(job, std::move(on_fault), std::move(nccl), find_node_ranks(job)) {}
  ~MpiWorld() override;

  int rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }
  const std::vector<RankLocation>& locations() const override { return locations_; }
  std::string description() const override;
  void open_gpu_transport() override {
    if (nccl_ && size() > 1) nccl_->open();
  }
  Channel make_channel() override;
  std::unique_ptr<StageLink> make_stage_link(const StagePlace& place, const StageRows& rows, Device& device,
                                             std::atomic<bool>& waits) override {
    if (nccl_)
      if (auto link = nccl_->make_link(control_, place.previous, place.next, rows, device)) return link;
    return World::make_stage_link(place, rows, device, waits);
  }
  Transport& transport() override { return control_; }
  std::optional<std::string> fault() override { return nccl_ ? nccl_->fault() : std::nullopt; }
  void abort_groups() noexcept override {
    if (nccl_) nccl_->abort();
  }
  [[noreturn]] void abort(int exit_code) override;

 private:
  // A rank spins only where its node has a core for every rank.
  MpiWorld(MPI_Comm job, FaultHandler on_fault, std::unique_ptr<NcclGroups> nccl, const NodeRanks& mine)
      : World(std::move(on_fault)),
        job_(job),
        nccl_(std::move(nccl)),
        spin_(mine.local_size > mine.cpus ? Backoff::Spin::no : Backoff::Spin::yes),
        control_(duplicate(job), spin_),
        locations_(find_locations(control_, mine)) {}

  std::unique_ptr<StageTransport> make_stage_transport(std::optional<int> previous,
                                                       std::optional<int> next) override {
    return std::make_unique<MpiStageTransport>(duplicate(control_.comm()), previous.value_or(-1),
                                               next.value_or(-1));
  }
  std::unique_ptr<Communicator> form_group(std::span<const int> ranks, Ops& ops, AllReduce how) override;

  const MPI_Comm job_;
  const std::unique_ptr<NcclGroups> nccl_;  // null in builds without NCCL
  const Backoff::Spin spin_;
  MpiTransport control_;
  const std::vector<RankLocation> locations_;
  std::vector<UniqueComm> channels_;
};

// A world that owns MPI: the base class MpiSession ends last.
struct MpiJob final : private MpiSession, public MpiWorld {
  MpiJob(FaultHandler on_fault, std::chrono::milliseconds settle, std::unique_ptr<NcclGroups> nccl)
      : MpiSession(settle), MpiWorld(everyone(), std::move(on_fault), std::move(nccl)) {}
};

// A world on a duplicate of another's communicator, which ends last.
struct OwnComm {
  UniqueComm comm;
};
struct MpiGuest final : private OwnComm, public MpiWorld {
  MpiGuest(MPI_Comm comm, FaultHandler on_fault, std::unique_ptr<NcclGroups> nccl)
      : OwnComm{duplicate(comm)}, MpiWorld(OwnComm::comm.get(), std::move(on_fault), std::move(nccl)) {}
};

// After the barrier nobody sends, and every rank receives the messages that its channels left unread. MPI may
// not end with messages in flight, and MPICH's UCX reports each of them on stdout, among the results.
MpiWorld::~MpiWorld() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    barrier();
    for (const UniqueComm& channel : channels_)
      for (MpiMailbox unread(channel.get(), nullptr); unread.try_receive();) continue;
  } catch (const Error&) {  // the transport is broken, and MPI_Finalize will report it
  }
}

std::string MpiWorld::description() const {
  const std::string gpus = nccl_ ? nccl_->description() : "";
  return mpi_library() + (gpus.empty() ? "" : ", " + gpus);
}

std::unique_ptr<Communicator> MpiWorld::form_group(std::span<const int> ranks, Ops& ops, AllReduce how) {
  require(std::count(ranks.begin(), ranks.end(), rank()) == 1, "a rank makes a group that it is not in");
  if (ranks.size() == 1) return std::make_unique<SelfCommunicator>(ops);
  MPI_Group handle = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(control_.comm(), &handle), "MPI_Comm_group");
  const UniqueGroup everyone(handle);
  check_mpi(MPI_Group_incl(everyone.get(), static_cast<int>(ranks.size()), ranks.data(), &handle),
            "MPI_Group_incl");
  const UniqueGroup members(handle);
  MPI_Comm comm = MPI_COMM_NULL;
  // Collective over the members only: disjoint groups do not wait for each other.
  check_mpi(MPI_Comm_create_group(control_.comm(), members.get(), 0, &comm), "MPI_Comm_create_group");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  auto transport = std::make_unique<MpiTransport>(UniqueComm(comm), spin_);
  if (nccl_)
    if (auto group = nccl_->make(*transport, ranks, ops.device())) return group;
  return make_host_communicator(std::move(transport), ops, how, spin_);
}

Channel MpiWorld::make_channel() {
  const MPI_Comm comm = channels_.emplace_back(duplicate(control_.comm())).get();
  if (rank() != 0) return {nullptr, std::make_unique<MpiMailbox>(comm, nullptr)};
  MemoryChannel own = make_memory_channel(1);
  return {std::make_unique<MpiMailbox>(comm, std::move(own.root)), std::move(own.leaves[0])};
}

void MpiWorld::abort(int exit_code) {
  MPI_Abort(job_, exit_code);
  end_process(exit_code);
}

#ifdef MANIPLE_NCCL
std::unique_ptr<NcclGroups> make_nccl_groups(GpuTransport transport, NcclSwitches switches) {
  return std::make_unique<NcclGroups>(make_nccl_api(), transport, switches);
}
#else
std::unique_ptr<NcclGroups> make_nccl_groups(GpuTransport transport, NcclSwitches) {
  if (transport != GpuTransport::nccl) return nullptr;
  throw Error(ExitCode::preflight, "`transport` nccl was given, but this build has no NCCL", "",
              "leave it out, or build with -DMANIPLE_CUDA=ON where CUDA and NCCL 2.14 or newer are");
}
#endif

}  // namespace

// Keeps the text of MPI up to the first comma or line end.
std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  std::string version = text.data();  // "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2\n..."
  version.resize(std::min(version.size(), version.find_first_of(",\n")));
  std::ranges::replace(version, '\t', ' ');
  return version;
}

std::unique_ptr<World> make_mpi_world(FaultHandler on_fault, GpuTransport transport, NcclSwitches nccl,
                                      std::chrono::milliseconds settle) {
  return std::make_unique<MpiJob>(std::move(on_fault), settle, make_nccl_groups(transport, nccl));
}

std::unique_ptr<World> make_guest_world(MPI_Comm comm) {
  int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized && !finalized) MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE)
    throw Error(ExitCode::preflight,
                initialized && !finalized
                    ? fmt::format("MPI has thread level {} of {}", level, +MPI_THREAD_MULTIPLE)
                    : "MPI is not initialised",
                "the model's threads send messages beside the caller's",
                "MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level) before the first Llm");
  return std::make_unique<MpiGuest>(
      comm, [comm](int code) { MPI_Abort(comm, code); }, make_nccl_groups(GpuTransport::automatic, {}));
}

}  // namespace maniple
