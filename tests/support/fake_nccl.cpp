#include <parallel/tree_reduce.hpp>
#include <support/fake_nccl.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <fstream>
#include <random>
#include <utility>

namespace maniple {

namespace fs = std::filesystem;

// What the ranks of a communicator leave for each other: files that appear whole.
class FakeNccl::FileExchange {
 public:
  FileExchange(fs::path folder, int rank, int size) : folder_(std::move(folder)), rank_(rank), size_(size) {
    fs::create_directories(folder_);
  }
  // The last to leave removes the folder.
  ~FileExchange() {
    std::error_code ignored;
    post("left", {});
    if (all("left")) fs::remove_all(folder_, ignored);
  }
  FileExchange(const FileExchange&) = delete;
  FileExchange& operator=(const FileExchange&) = delete;

  void abort() { aborted_ = true; }
  bool all(const std::string& what) const {
    for (int peer = 0; peer < size_; ++peer)
      if (!fs::exists(folder_ / name(what, peer))) return false;
    return true;
  }

  // A round: each rank posts a message, and reads those of all ranks once they are there. A rank that has
  // read the messages of one round no longer needs those of the one before. After an abort messages are
  // empty.
  void begin_round(const Bytes& mine) { post(std::to_string(++rounds_), mine); }
  bool can_end_round() const { return aborted_ || all(std::to_string(rounds_)); }
  std::vector<Bytes> end_round() {
    std::vector<Bytes> messages;
    for (int peer = 0; peer < size_; ++peer) messages.push_back(read(name(std::to_string(rounds_), peer)));
    fs::remove(folder_ / name(std::to_string(rounds_ - 1), rank_));
    return messages;
  }

  void send(const Bytes& mine, int to) { post(message_to(to, ++sent_[to]), mine); }
  bool can_receive(int from) {
    return aborted_ || fs::exists(folder_ / name(message_to(rank_, received_[from] + 1), from));
  }
  Bytes receive(int from) {
    const std::string mine = name(message_to(rank_, ++received_[from]), from);
    const Bytes content = read(mine);
    fs::remove(folder_ / mine);
    return content;
  }

  void post(const std::string& what, const Bytes& content) {
    const fs::path hidden = folder_ / fmt::format(".{}", name(what, rank_));
    std::ofstream(hidden, std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    std::error_code ignored;  // another rank may have removed the folder
    fs::rename(hidden, folder_ / name(what, rank_), ignored);
  }

 private:
  static std::string name(const std::string& what, int from) { return fmt::format("{}.from.{}", what, from); }
  static std::string message_to(int to, uint64_t number) { return fmt::format("to.{}.{}", to, number); }

  Bytes read(const std::string& message) const {
    if (!fs::exists(folder_ / message)) return {};
    Bytes content(fs::file_size(folder_ / message));
    std::ifstream(folder_ / message, std::ios::binary)
        .read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(content.size()));
    return content;
  }

  const fs::path folder_;
  const int rank_, size_;
  std::atomic<bool> aborted_ = false;
  uint64_t rounds_ = 0;
  std::map<int, uint64_t> sent_, received_;
};

}  // namespace maniple

struct ncclComm {
  std::shared_ptr<maniple::FakeNccl::FileExchange> exchange;
  std::atomic<maniple::NcclResult>* state = nullptr;  // of all ranks of the communicator in this process
  int rank = 0, size = 0;
  bool joined = false;
  bool told_progress = false;  // since the last call
  bool finalizing = false;
  bool ended = false;
  std::deque<maniple::FakeNccl::Operation> queue;  // where there are no streams
};

namespace maniple {
namespace {

struct OpenGroup {
  int depth = 0;
  std::vector<FakeNccl::Call> calls;
};
thread_local OpenGroup open_group;

// What ranks call must be the same, but for the bytes behind it.
struct Header {
  std::array<char, 16> call{};
  DType dtype{};
  int root = 0;
  uint64_t bytes = 0;

  bool operator==(const Header&) const = default;
};

FakeNccl::Bytes message_of(const Header& header, ConstTensorView x) {
  FakeNccl::Bytes message(sizeof header + x.bytes());
  std::memcpy(message.data(), &header, sizeof header);
  if (!x.empty()) std::memcpy(message.data() + sizeof header, x.data, x.bytes());
  return message;
}

Header header_of(const std::string& call, DType dtype, int root, uint64_t bytes) {
  Header header{.dtype = dtype, .root = root, .bytes = bytes};
  call.copy(header.call.data(), header.call.size());
  return header;
}

// False where the header is another one.
bool strip_header(FakeNccl::Bytes& message, const Header& expected) {
  Header found;
  std::memcpy(&found, message.data(), sizeof found);
  message.erase(message.begin(), message.begin() + sizeof found);
  return found == expected;
}

void copy(const FakeNccl::Bytes& from, std::byte* to) { std::memcpy(to, from.data(), from.size()); }

}  // namespace

FakeNccl::FakeNccl(Enqueue enqueue, fs::path folder)
    : enqueue_(std::move(enqueue)), folder_(std::move(folder)) {}
FakeNccl::~FakeNccl() = default;

size_t FakeNccl::ranks_of(NcclComm comm) const { return static_cast<size_t>(comm->size); }

void FakeNccl::refuse(const std::string& call, NcclResult result) {
  const std::lock_guard lock(mutex_);
  refused_[call] = result;
}

void FakeNccl::break_in_background(NcclResult result) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, state] : states_) state = result;
}

void FakeNccl::let_join(int ranks) {
  const std::lock_guard lock(mutex_);
  ranks_that_join_ = ranks;
}

void FakeNccl::let_finalize_end(bool ends) { finalize_ends_ = ends; }

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
  if (!device.shares_host_memory()) return std::nullopt;
  const std::string uuid = device.description();
  return Gpu{uuid, uuid.substr(0, uuid.find('/')), nullptr};
}

namespace {
struct NoLane final : NcclLane {
  NcclStream stream() override { return nullptr; }
  void mark(size_t) override {}
  void mark_device(size_t) override {}
  void follow_device(size_t) override {}
  void device_follows(size_t) override {}
};
}  // namespace

std::unique_ptr<NcclLane> FakeNccl::make_lane(Device&) { return std::make_unique<NoLane>(); }

std::string FakeNccl::describe(NcclResult result, NcclComm) {
  return fmt::format("fake error {}", static_cast<int>(result));
}

// --- the life of communicators ---

// The mutex is held. What the call answers unless something else is in its way.
NcclResult FakeNccl::begin(const std::string& call, NcclComm comm) {
  log_.push_back(comm ? fmt::format("{} {}", call, comm->rank) : call);
  if (comm && comm->ended) return invalid_argument;
  const auto refused = refused_.find(call);
  return refused == refused_.end() ? NcclResult::in_progress : refused->second;
}

NcclResult FakeNccl::draw_id(NcclId& id) {
  const std::lock_guard lock(mutex_);
  std::random_device random;
  const std::string name = fmt::format("fake-nccl.{}.{:08x}{:08x}", ::getpid(), random(), random());
  id = {};
  std::memcpy(id.data(), name.data(), name.size());
  const NcclResult result = begin("draw", nullptr);
  return failed(result) ? result : NcclResult::success;
}

NcclResult FakeNccl::comm_init(NcclComm& comm, int size, const NcclId& id, int rank, int /*most_blocks*/) {
  const std::lock_guard lock(mutex_);
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  made->size = size;
  made->state = &states_.try_emplace(id, NcclResult::success).first->second;
  const NcclResult result = begin("init", made.get());
  if (failed(result)) return result;
  made->exchange =
      std::make_shared<FileExchange>(folder_ / reinterpret_cast<const char*>(id.data()), rank, size);
  if (rank < ranks_that_join_) made->exchange->post("joined", {});
  comm = comms_.emplace_back(std::move(made)).get();
  return result;
}

NcclResult FakeNccl::comm_state(NcclComm comm, NcclResult& state) {
  const std::lock_guard lock(mutex_);
  if (comm->ended) return invalid_argument;
  comm->joined = comm->joined || comm->exchange->all("joined");
  while (!failed(*comm->state) && !comm->queue.empty() && comm->queue.front().can_run()) {
    comm->queue.front().run();
    comm->queue.pop_front();
  }
  const bool ends = !comm->finalizing || (finalize_ends_ && comm->exchange->all("finalizing"));
  const bool done = comm->joined && std::exchange(comm->told_progress, true) && comm->queue.empty() && ends;
  state = failed(*comm->state) ? comm->state->load() : done ? NcclResult::success : NcclResult::in_progress;
  return NcclResult::success;
}

NcclResult FakeNccl::comm_finalize(NcclComm comm) {
  const std::lock_guard lock(mutex_);
  const NcclResult result = begin("finalize", comm);
  if (failed(result)) return result;
  comm->finalizing = true;
  comm->told_progress = false;
  comm->exchange->post("finalizing", {});
  return result;
}

NcclResult FakeNccl::comm_destroy(NcclComm comm) {
  const std::lock_guard lock(mutex_);
  const NcclResult result = begin("destroy", comm);
  comm->ended = true;
  comm->exchange.reset();
  return failed(result) ? result : NcclResult::success;
}

NcclResult FakeNccl::comm_abort(NcclComm comm) {
  abort_ends_.wait(false);
  const std::lock_guard lock(mutex_);
  const NcclResult result = begin("abort", comm);
  comm->ended = true;
  comm->exchange->abort();
  comm->queue.clear();
  comm->exchange.reset();
  if (!failed(*comm->state)) *comm->state = remote_error;
  return failed(result) ? result : NcclResult::success;
}

// --- calls ---

NcclResult FakeNccl::group_start() {
  ++open_group.depth;
  return NcclResult::success;
}

NcclResult FakeNccl::group_end() {
  if (--open_group.depth > 0) return NcclResult::success;
  std::vector<Call> calls = std::exchange(open_group.calls, {});
  std::ranges::stable_sort(calls, {}, &Call::stage);
  const std::lock_guard lock(mutex_);
  for (const Call& call : calls) start(call);
  return calls.empty() ? NcclResult::success : NcclResult::in_progress;
}

NcclResult FakeNccl::submit(Call call) {
  const std::lock_guard lock(mutex_);
  if (call.comm->ended) return invalid_argument;
  if (failed(*call.comm->state)) return *call.comm->state;
  if (!call.comm->joined) return invalid_usage;
  if (open_group.depth > 0) {
    open_group.calls.push_back(std::move(call));
    return NcclResult::success;
  }
  start(call);
  return NcclResult::in_progress;
}

void FakeNccl::start(const Call& call) {
  call.comm->told_progress = false;
  for (const Operation& operation : call.operations) {
    if (enqueue_)
      enqueue_(call.stream, operation);
    else
      call.comm->queue.push_back(operation);
  }
}

NcclResult FakeNccl::collective(const std::string& name, ConstTensorView in, int root, NcclComm comm,
                                NcclStream stream, std::function<void(std::vector<Bytes>& all)> take) {
  const Header header = header_of(name, in.dtype, root, in.bytes());
  const std::shared_ptr<FileExchange> exchange = comm->exchange;
  const auto post = [exchange, header, in] { exchange->begin_round(message_of(header, in)); };
  const auto finish = [exchange, header, take, state = comm->state] {
    std::vector<Bytes> all = exchange->end_round();
    if (std::ranges::any_of(all, &Bytes::empty)) return;
    bool match = true;
    for (Bytes& message : all) match &= strip_header(message, header);
    if (!match) *state = invalid_usage;
    if (match) take(all);
  };
  const auto can_finish = [exchange] { return exchange->can_end_round(); };
  return submit({Stage::collective, comm, stream, {{post}, {finish, can_finish}}});
}

// In all[0].
TensorView FakeNccl::sum(std::vector<Bytes>& all, DType dtype) {
  const auto value = [&](int rank) {
    const auto elements = static_cast<int64_t>(all[rank].size() / size_of(dtype));
    return TensorView{all[rank].data(), dtype, {elements}};
  };
  for (const auto& level : tree_levels(static_cast<int>(all.size())))
    for (const TreeAddition& addition : level)
      ops_.add(value(addition.to), value(addition.from), value(addition.to));
  return value(0);
}

NcclResult FakeNccl::allocate(std::byte*& memory, size_t bytes) {
  memory = device_.allocate(bytes);
  const std::lock_guard lock(mutex_);
  windows_[memory] = {memory, DType::uint8, {static_cast<int64_t>(bytes)}};
  return NcclResult::success;
}

NcclResult FakeNccl::release(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  device_.release(memory, windows_.extract(memory).mapped().bytes());
  return NcclResult::success;
}

NcclResult FakeNccl::open_window(NcclWindow& window, TensorView memory, NcclComm comm) {
  const std::lock_guard lock(mutex_);
  window = memory.data;
  windows_[window] = memory;
  return begin("open window", comm);
}

NcclResult FakeNccl::close_window(NcclWindow, NcclComm comm) {
  const std::lock_guard lock(mutex_);
  return begin("close window", comm);
}

NcclResult FakeNccl::all_reduce(TensorView x, NcclComm comm, NcclStream stream) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [window, memory] : windows_)
      if (x.data >= memory.data && x.data + x.bytes() <= memory.data + memory.bytes())
        log_.push_back(fmt::format("sum in window {}", comm->rank));
  }
  return collective("all_reduce", x, 0, comm, stream, [this, x](std::vector<Bytes>& all) {
    sum(all, x.dtype);
    copy(all[0], x.data);
  });
}

NcclResult FakeNccl::all_gather(ConstTensorView in, TensorView out, NcclComm comm, NcclStream stream) {
  return collective("all_gather", in, 0, comm, stream, [in, out](std::vector<Bytes>& all) {
    for (size_t rank = 0; rank < all.size(); ++rank) copy(all[rank], out.data + rank * in.bytes());
  });
}

NcclResult FakeNccl::reduce_scatter(ConstTensorView in, TensorView out, NcclComm comm, NcclStream stream) {
  return collective(
      "reduce_scatter", in, 0, comm, stream, [this, out, rank = comm->rank](std::vector<Bytes>& all) {
        const TensorView total = sum(all, out.dtype);
        std::memcpy(out.data, total.data + out.bytes() * static_cast<size_t>(rank), out.bytes());
      });
}

NcclResult FakeNccl::reduce(ConstTensorView in, TensorView out, int root, NcclComm comm, NcclStream stream) {
  return collective("reduce", in, root, comm, stream,
                    [this, in, out, takes = comm->rank == root](std::vector<Bytes>& all) {
                      sum(all, in.dtype);
                      if (takes) copy(all[0], out.data);
                    });
}

NcclResult FakeNccl::broadcast(ConstTensorView in, TensorView out, int root, NcclComm comm,
                               NcclStream stream) {
  const ConstTensorView mine = comm->rank == root ? in : ConstTensorView(out);
  return collective("broadcast", mine, root, comm, stream,
                    [out, root](std::vector<Bytes>& all) { copy(all[static_cast<size_t>(root)], out.data); });
}

NcclResult FakeNccl::send(ConstTensorView x, int to, NcclComm comm, NcclStream stream) {
  const Header header = header_of("message", x.dtype, 0, x.bytes());
  const auto post = [exchange = comm->exchange, header, x, to] { exchange->send(message_of(header, x), to); };
  return submit({Stage::send, comm, stream, {{post}}});
}

NcclResult FakeNccl::receive(TensorView x, int from, NcclComm comm, NcclStream stream) {
  const Header header = header_of("message", x.dtype, 0, x.bytes());
  const std::shared_ptr<FileExchange> exchange = comm->exchange;
  const auto take = [exchange, header, x, from, state = comm->state] {
    Bytes message = exchange->receive(from);
    if (message.empty()) return;
    if (strip_header(message, header))
      copy(message, x.data);
    else
      *state = invalid_usage;
  };
  return submit(
      {Stage::receive, comm, stream, {{take, [exchange, from] { return exchange->can_receive(from); }}}});
}

}  // namespace maniple
