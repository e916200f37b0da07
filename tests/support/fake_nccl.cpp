#include <parallel/tree_reduce.hpp>
#include <support/fake_nccl.hpp>

#include <algorithm>
#include <cstring>
#include <deque>

struct ncclComm {
  maniple::FakeNccl::Clique* clique = nullptr;
  int rank = 0;
  int unfinished = 0;      // calls
  size_t collectives = 0;  // called so far
  bool finalizing = false;
  bool ended = false;
};

namespace maniple {

// The communicators of one id.
struct FakeNccl::Clique {
  int size = 0;
  int joined = 0;
  int finalizing = 0;
  NcclResult state = NcclResult::success;
  std::vector<std::unique_ptr<ncclComm>> comms;
  std::map<size_t, std::vector<Call>> collectives;                 // by number, until all ranks have joined
  std::map<std::pair<int, int>, std::deque<Call>> sent, received;  // from, to
};

namespace {

constexpr NcclResult invalid_argument{4};

struct OpenGroup {
  int depth = 0;
  std::vector<FakeNccl::Call> calls;
};
thread_local OpenGroup open_group;

void copy(ConstTensorView from, std::byte* to) { std::memmove(to, from.data, from.bytes()); }

bool match(const FakeNccl::Call& a, const FakeNccl::Call& b) {
  return a.kind == b.kind && a.in.bytes() == b.in.bytes() && a.in.dtype == b.in.dtype && a.peer == b.peer;
}

}  // namespace

FakeNccl::FakeNccl() = default;
FakeNccl::~FakeNccl() = default;

void FakeNccl::refuse(const std::string& call, NcclResult result) {
  const std::lock_guard lock(mutex_);
  refused_[call] = result;
}

void FakeNccl::break_in_background(NcclResult result) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, clique] : cliques_) clique->state = result;
}

void FakeNccl::let_join(int ranks) {
  const std::lock_guard lock(mutex_);
  ranks_that_join_ = ranks;
}

void FakeNccl::let_finalize_end(bool ends) {
  const std::lock_guard lock(mutex_);
  finalize_ends_ = ends;
}

void FakeNccl::let_abort_end(bool ends) {
  abort_ends_ = ends;
  abort_ends_.notify_all();
}

std::vector<std::string> FakeNccl::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

void FakeNccl::open() {
  const std::lock_guard lock(mutex_);
  begin("open", nullptr);
}

std::optional<Gpu> FakeNccl::gpu_of(Device& device) {
  return device.shares_host_memory() ? std::optional(Gpu{device.description(), nullptr}) : std::nullopt;
}

std::string FakeNccl::describe(NcclResult result, NcclComm) {
  return fmt::format("fake error {}", static_cast<int>(result));
}

// --- the life of communicators ---

// Requires the mutex. Returns the result of the call unless another condition decides it.
NcclResult FakeNccl::begin(const std::string& call, NcclComm comm) {
  log_.push_back(comm ? fmt::format("{} {}", call, comm->rank) : call);
  if (comm && comm->ended) return invalid_argument;
  const auto refused = refused_.find(call);
  return refused == refused_.end() ? NcclResult::in_progress : refused->second;
}

NcclResult FakeNccl::draw_id(NcclId& id) {
  const std::lock_guard lock(mutex_);
  id[0] = static_cast<std::byte>(++ids_drawn_);
  const NcclResult result = begin("draw", nullptr);
  return failed(result) ? result : NcclResult::success;
}

NcclResult FakeNccl::comm_init(NcclComm& comm, int size, const NcclId& id, int rank) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Clique>& clique = cliques_[id];
  if (!clique) clique = std::make_unique<Clique>();
  clique->size = size;
  clique->comms.push_back(std::make_unique<ncclComm>(ncclComm{.clique = clique.get(), .rank = rank}));
  const NcclResult result = begin("init", clique->comms.back().get());
  if (failed(result)) return result;
  comm = clique->comms.back().get();
  if (rank < ranks_that_join_) ++clique->joined;
  return result;
}

NcclResult FakeNccl::comm_state(NcclComm comm, NcclResult& state) {
  const std::lock_guard lock(mutex_);
  if (comm->ended) return invalid_argument;
  const Clique& clique = *comm->clique;
  const bool all_finalize = finalize_ends_ && clique.finalizing == clique.size;
  const bool waits =
      clique.joined < clique.size || comm->unfinished > 0 || (comm->finalizing && !all_finalize);
  state = failed(clique.state) ? clique.state : waits ? NcclResult::in_progress : NcclResult::success;
  return NcclResult::success;
}

NcclResult FakeNccl::comm_finalize(NcclComm comm) {
  const std::lock_guard lock(mutex_);
  const NcclResult result = begin("finalize", comm);
  if (failed(result)) return result;
  comm->finalizing = true;
  ++comm->clique->finalizing;
  return result;
}

NcclResult FakeNccl::comm_destroy(NcclComm comm) {
  const std::lock_guard lock(mutex_);
  const NcclResult result = begin("destroy", comm);
  comm->ended = true;
  return result;
}

NcclResult FakeNccl::comm_abort(NcclComm comm) {
  abort_ends_.wait(false);
  const std::lock_guard lock(mutex_);
  const NcclResult result = begin("abort", comm);
  comm->ended = true;
  if (!failed(comm->clique->state)) comm->clique->state = remote_error;
  return result;
}

// --- calls ---

NcclResult FakeNccl::group_start() {
  ++open_group.depth;
  return NcclResult::success;
}

NcclResult FakeNccl::group_end() {
  if (--open_group.depth > 0) return NcclResult::success;
  const std::vector<Call> calls = std::exchange(open_group.calls, {});
  const std::lock_guard lock(mutex_);
  for (const Call& call : calls) post(call);
  return calls.empty() ? NcclResult::success : NcclResult::in_progress;
}

NcclResult FakeNccl::submit(const Call& call) {
  const std::lock_guard lock(mutex_);
  if (call.comm->ended) return invalid_argument;
  if (failed(call.comm->clique->state)) return call.comm->clique->state;
  if (open_group.depth > 0) {
    open_group.calls.push_back(call);
    return NcclResult::success;
  }
  post(call);
  return NcclResult::in_progress;
}

void FakeNccl::post(const Call& call) {
  Clique& clique = *call.comm->clique;
  const int rank = call.comm->rank;
  ++call.comm->unfinished;
  if (call.kind == Kind::send) {
    clique.sent[{rank, call.peer}].push_back(call);
    return pass_on(clique, rank, call.peer);
  }
  if (call.kind == Kind::receive) {
    clique.received[{call.peer, rank}].push_back(call);
    return pass_on(clique, call.peer, rank);
  }
  const size_t number = call.comm->collectives++;
  std::vector<Call>& calls = clique.collectives[number];
  calls.push_back(call);
  if (static_cast<int>(calls.size()) < clique.size) return;
  std::ranges::sort(calls, {}, [](const Call& one) { return one.comm->rank; });
  compute(clique, calls);
  for (const Call& one : calls) --one.comm->unfinished;
  clique.collectives.erase(number);
}

void FakeNccl::pass_on(Clique& clique, int from, int to) {
  std::deque<Call>&sent = clique.sent[{from, to}], &received = clique.received[{from, to}];
  if (failed(clique.state) || sent.empty() || received.empty()) return;
  const Call out = sent.front(), in = received.front();
  if (out.in.bytes() != in.out.bytes()) {
    clique.state = invalid_usage;
    return;
  }
  copy(out.in, in.out.data);
  --out.comm->unfinished;
  --in.comm->unfinished;
  sent.pop_front();
  received.pop_front();
}

// calls: one a rank, by rank.
void FakeNccl::compute(Clique& clique, const std::vector<Call>& calls) {
  if (failed(clique.state)) return;
  if (!std::ranges::all_of(calls, [&](const Call& call) { return match(call, calls[0]); })) {
    clique.state = invalid_usage;
    return;
  }
  const Call& root = calls[static_cast<size_t>(calls[0].peer)];
  switch (root.kind) {
    case Kind::all_gather: {
      for (const Call& to : calls)
        for (const Call& from : calls)
          copy(from.in, to.out.data + static_cast<size_t>(from.comm->rank) * from.in.bytes());
      return;
    }
    case Kind::broadcast:
      for (const Call& to : calls) copy(root.in, to.out.data);
      return;
    default:
      break;
  }
  const std::vector<std::byte> total = sum(calls);
  if (root.kind == Kind::reduce) return copy({total.data(), root.in.dtype, root.in.shape}, root.out.data);
  for (const Call& to : calls) {
    const size_t begin = root.kind == Kind::all_reduce ? 0 : to.out.bytes() * to.comm->rank;
    std::memcpy(to.out.data, total.data() + begin, to.out.bytes());
  }
}

std::vector<std::byte> FakeNccl::sum(const std::vector<Call>& calls) {
  std::vector<std::vector<std::byte>> values;
  for (const Call& call : calls) values.emplace_back(call.in.data, call.in.data + call.in.bytes());
  const auto value = [&](int rank) {
    return TensorView{values[rank].data(), calls[0].in.dtype, calls[0].in.shape};
  };
  for (const auto& level : tree_levels(static_cast<int>(calls.size())))
    for (const TreeAddition& addition : level)
      ops_.add(value(addition.to), value(addition.from), value(addition.to));
  return values[0];
}

NcclResult FakeNccl::all_reduce(TensorView x, NcclComm comm, NcclStream) {
  return submit({Kind::all_reduce, comm, x, x});
}
NcclResult FakeNccl::all_gather(ConstTensorView in, TensorView out, NcclComm comm, NcclStream) {
  return submit({Kind::all_gather, comm, in, out});
}
NcclResult FakeNccl::reduce_scatter(ConstTensorView in, TensorView out, NcclComm comm, NcclStream) {
  return submit({Kind::reduce_scatter, comm, in, out});
}
NcclResult FakeNccl::reduce(ConstTensorView in, TensorView out, int root, NcclComm comm, NcclStream) {
  return submit({Kind::reduce, comm, in, out, root});
}
NcclResult FakeNccl::broadcast(ConstTensorView in, TensorView out, int root, NcclComm comm, NcclStream) {
  return submit({Kind::broadcast, comm, in, out, root});
}
NcclResult FakeNccl::send(ConstTensorView x, int to, NcclComm comm, NcclStream) {
  return submit({Kind::send, comm, x, {}, to});
}
NcclResult FakeNccl::receive(TensorView x, int from, NcclComm comm, NcclStream) {
  return submit({Kind::receive, comm, {}, x, from});
}

}  // namespace maniple
