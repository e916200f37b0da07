// A stand-in for NCCL, for ranks that are processes of one machine. They exchange files in a folder named
// after the communicator's id, below $STAND_IN_FOLDER (/dev/shm). As in the library, calls on a non-blocking
// communicator are in progress at first, the calls of a group start at its end, and collectives run in the
// order of the stream or of the graph that recorded them. Sums are rounded at each step. A collective with a
// missing rank waits until it is aborted. STAND_IN_LAST_BROADCAST=N kills a rank in its N-th broadcast.
#include <kernels/reference/rows.hpp>
#include <rehearsal/stand_in_cuda.hpp>

#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace maniple::rehearsal {

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<char>;

// The files that ranks of a communicator leave for each other.
class PostOffice {
 public:
  PostOffice(fs::path folder, int rank, int size) : folder_(std::move(folder)), rank_(rank), size_(size) {
    fs::create_directories(folder_);
    post("joined", {});
  }
  // The last to leave closes it.
  ~PostOffice() {
    std::error_code ignored;
    post("left", {});
    if (all("left")) fs::remove_all(folder_, ignored);
  }
  PostOffice(const PostOffice&) = delete;
  PostOffice& operator=(const PostOffice&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  void abort() { aborted_ = true; }

  bool all(const std::string& what) const {
    for (int peer = 0; peer < size_; ++peer)
      if (!fs::exists(folder_ / name(what, peer))) return false;
    return true;
  }

  // An exchange: each rank posts its letter and reads the letters of all ranks
  // once they are there. A rank that has read the letters of one exchange has
  // finished the previous one. An aborted exchange gives empty letters.
  void begin_exchange(const Bytes& mine) { post(std::to_string(++exchanges_), mine); }
  bool can_end_exchange() const { return aborted_ || all(std::to_string(exchanges_)); }
  std::vector<Bytes> end_exchange() {
    std::vector<Bytes> letters;
    for (int peer = 0; peer < size_; ++peer) letters.push_back(read(name(std::to_string(exchanges_), peer)));
    fs::remove(folder_ / name(std::to_string(exchanges_ - 1), rank_));
    return letters;
  }

  void send(const Bytes& mine, int to) { post(parcel(to, ++sent_[to]), mine); }
  bool can_receive(int from) {
    return aborted_ || fs::exists(folder_ / name(parcel(rank_, received_[from] + 1), from));
  }
  Bytes receive(int from) {
    const std::string mine = name(parcel(rank_, ++received_[from]), from);
    const Bytes content = read(mine);
    fs::remove(folder_ / mine);
    return content;
  }

 private:
  static std::string name(const std::string& what, int from) { return fmt::format("{}.from.{}", what, from); }
  static std::string parcel(int to, uint64_t number) { return fmt::format("to.{}.{}", to, number); }

  void post(const std::string& what, const Bytes& content) {
    const fs::path hidden = folder_ / fmt::format(".{}", name(what, rank_));
    std::ofstream(hidden, std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    fs::rename(hidden, folder_ / name(what, rank_));
  }
  Bytes read(const std::string& letter) const {
    if (!fs::exists(folder_ / letter)) return {};
    Bytes content(fs::file_size(folder_ / letter));
    std::ifstream(folder_ / letter, std::ios::binary)
        .read(content.data(), static_cast<std::streamsize>(content.size()));
    return content;
  }

  const fs::path folder_;
  const int rank_, size_;
  std::atomic<bool> aborted_ = false;
  uint64_t exchanges_ = 0;
  std::map<int, uint64_t> sent_, received_;
};

DType dtype_of(ncclDataType_t type) {
  return type == ncclBfloat16 ? DType::bf16 : type == ncclFloat16 ? DType::fp16 : DType::fp32;
}
size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
    case ncclFloat16:
      return 2;
    default:
      return 4;
  }
}

Bytes bytes_at(const void* from, size_t count) {
  const char* const first = static_cast<const char*>(from);
  return Bytes(first, first + count);
}
// Bytes of an aborted exchange are empty.
void put(void* to, const Bytes& bytes) {
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
}

// Elements [first, first + count) of all ranks, added from rank 0 on.
void put_sum(void* to, const std::vector<Bytes>& all, ncclDataType_t type, size_t first, size_t count) {
  const TensorView sum{static_cast<std::byte*>(to), dtype_of(type), {static_cast<int64_t>(count)}};
  put(to, Bytes(count * bytes_of(type), 0));
  for (const Bytes& bytes : all) {
    if (bytes.empty()) return;
    const ConstTensorView part{reinterpret_cast<const std::byte*>(bytes.data()),
                               sum.dtype,
                               {static_cast<int64_t>(bytes.size() / bytes_of(type))}};
    reference::Floats sums = reference::read(sum, 0, sum.shape[0]);
    const reference::Floats more = reference::read(part, static_cast<int64_t>(first), sum.shape[0]);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    reference::write(sum, 0, sums);
  }
}

}  // namespace

}  // namespace maniple::rehearsal

using namespace maniple::rehearsal;

struct ncclComm {
  std::shared_ptr<PostOffice> office;
  bool joined = false;
  bool told_progress = false;
};

namespace {

using Work = std::function<void(PostOffice&)>;
using CanWork = std::function<bool(PostOffice&)>;

enum class Stage { send, collective, receive };
struct Part {
  Stage stage;
  ncclComm_t comm;
  cudaStream_t stream;
  Work work;
  CanWork can_work;
};
struct OpenGroup {
  int depth = 0;
  std::vector<Part> parts;
};
thread_local OpenGroup open_group;

ncclResult_t begin(const Part& part) {
  part.comm->told_progress = false;
  const std::shared_ptr<PostOffice> office = part.comm->office;
  enqueue(part.stream, {[office, work = part.work](auto&) { work(*office); },
                        [office, can_work = part.can_work] { return can_work(*office); }});
  return ncclInProgress;
}
ncclResult_t submit(
    Stage stage, ncclComm_t comm, cudaStream_t stream, Work work,
    CanWork can_work = [](auto&) { return true; }) {
  if (!comm->joined) return ncclInvalidUsage;
  const Part part{stage, comm, stream, std::move(work), std::move(can_work)};
  if (open_group.depth == 0) return begin(part);
  open_group.parts.push_back(part);
  return ncclSuccess;
}

// Each rank passes its bytes and gets those of all ranks, by rank.
ncclResult_t collective(ncclComm_t comm, cudaStream_t stream, const void* in, size_t bytes,
                        std::function<void(const std::vector<Bytes>&)> take) {
  submit(Stage::collective, comm, stream,
         [=](PostOffice& office) { office.begin_exchange(bytes_at(in, bytes)); });
  return submit(
      Stage::collective, comm, stream, [=](PostOffice& office) { take(office.end_exchange()); },
      [](PostOffice& office) { return office.can_end_exchange(); });
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "refused by the stand-in for NCCL"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  std::random_device random;
  std::snprintf(id->internal, sizeof id->internal, "stand-in-nccl.%d.%08x", getpid(), random());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;
  const char* const folder = std::getenv("STAND_IN_FOLDER");
  *comm = new ncclComm{
      std::make_shared<PostOffice>(fs::path(folder ? folder : "/dev/shm") / id.internal, rank, size)};
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  comm->joined = comm->joined || comm->office->all("joined");
  *state = comm->joined && std::exchange(comm->told_progress, true) ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->told_progress = false;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->office->abort();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++open_group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--open_group.depth > 0 || open_group.parts.empty()) return ncclSuccess;
  const std::vector<Part> parts = std::exchange(open_group.parts, {});
  for (const Stage stage : {Stage::send, Stage::collective, Stage::receive})
    for (const Part& part : parts)
      if (part.stage == stage) begin(part);
  return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, in, count * bytes_of(type),
                    [=](const std::vector<Bytes>& all) { put_sum(out, all, type, 0, count); });
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  const auto ranks = static_cast<size_t>(comm->office->size()),
             mine = static_cast<size_t>(comm->office->rank());
  return collective(comm, stream, in, ranks * count * bytes_of(type),
                    [=](const std::vector<Bytes>& all) { put_sum(out, all, type, mine * count, count); });
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  const bool mine = comm->office->rank() == root;
  return collective(comm, stream, in, count * bytes_of(type), [=](const std::vector<Bytes>& all) {
    if (mine) put_sum(out, all, type, 0, count);
  });
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type);
  return collective(comm, stream, in, bytes, [=](const std::vector<Bytes>& all) {
    for (size_t rank = 0; rank < all.size(); ++rank) put(static_cast<char*>(out) + rank * bytes, all[rank]);
  });
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  static int broadcasts = 0;
  const char* const last = std::getenv("STAND_IN_LAST_BROADCAST");
  if (last && ++broadcasts == std::atoi(last)) std::raise(SIGKILL);
  const size_t bytes = comm->office->rank() == root ? count * bytes_of(type) : 0;
  return collective(comm, stream, in, bytes,
                    [=](const std::vector<Bytes>& all) { put(out, all[static_cast<size_t>(root)]); });
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(Stage::send, comm, stream,
                [=](PostOffice& office) { office.send(bytes_at(in, count * bytes_of(type)), to); });
}
ncclResult_t ncclRecv(void* out, size_t, ncclDataType_t, int from, ncclComm_t comm, cudaStream_t stream) {
  return submit(
      Stage::receive, comm, stream, [=](PostOffice& office) { put(out, office.receive(from)); },
      [=](PostOffice& office) { return office.can_receive(from); });
}
