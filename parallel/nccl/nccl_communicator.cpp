#include <parallel/nccl/nccl_communicator.hpp>
#include <parallel/split_rows.hpp>

#include <algorithm>
#include <exception>

namespace maniple {

namespace {

bool all_equal(std::span<const int64_t> rows) {
  return std::all_of(rows.begin(), rows.end(), [&](int64_t count) { return count == rows[0]; });
}

}  // namespace

NcclCommunicator::~NcclCommunicator() {
  if (window_ && std::uncaught_exceptions() == 0) {
    try {
      group_->run("ncclCommWindowDeregister",
                  [&](NcclComm comm) { return api_.close_window(window_, comm); });
    } catch (const Error&) {  // aborted: its windows went with it
    }
  }
  group_->close();
  if (sum_memory_.data && std::uncaught_exceptions() == 0) api_.release(sum_memory_.data);
}

TensorView NcclCommunicator::sum_memory(size_t bytes) {
  if (!windows_ || bytes == 0) return {};
  if (!window_) {
    sum_memory_ = {nullptr, DType::uint8, {static_cast<int64_t>(bytes)}};
    group_->run("ncclMemAlloc", [&](NcclComm) { return api_.allocate(sum_memory_.data, bytes); });
    group_->run("ncclCommWindowRegister",
                [&](NcclComm comm) { return api_.open_window(window_, sum_memory_, comm); });
  }
  require(sum_memory_.bytes() == bytes, "the memory of sums has one size");
  return sum_memory_;
}

void NcclCommunicator::all_reduce(TensorView x) {
  if (x.empty()) return;
  group_->run("ncclAllReduce", [&](NcclComm comm) { return api_.all_reduce(x, comm, stream_); });
}

void NcclCommunicator::all_gatherv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) {
  const std::vector<TensorView> parts = split_rows(out, in, rows, rank(), size());
  if (out.empty()) return;
  if (all_equal(rows))
    return group_->run("ncclAllGather",
                       [&](NcclComm comm) { return api_.all_gather(in, out, comm, stream_); });
  for_each_peer("ncclBroadcast of each rank's rows", [&](int peer, NcclComm comm) {
    const TensorView part = parts[peer];
    if (part.empty()) return NcclResult::success;
    return api_.broadcast(peer == rank() ? in : part, part, peer, comm, stream_);
  });
}

void NcclCommunicator::reduce_scatterv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) {
  const std::vector<ConstTensorView> parts = split_rows(in, out, rows, rank(), size());
  if (in.empty()) return;
  if (all_equal(rows))
    return group_->run("ncclReduceScatter",
                       [&](NcclComm comm) { return api_.reduce_scatter(in, out, comm, stream_); });
  for_each_peer("ncclReduce to each rank", [&](int peer, NcclComm comm) {
    if (parts[peer].empty()) return NcclResult::success;
    return api_.reduce(parts[peer], out, peer, comm, stream_);
  });
}

void NcclCommunicator::all_to_all(ConstTensorView in, TensorView out) {
  require(exchangeable(in, out, size()), "all_to_all: the tensors are not [size, ...] alike");
  if (in.empty()) return;
  for_each_peer("ncclSend and ncclRecv with each rank", [&](int peer, NcclComm comm) {
    const NcclResult sent = api_.send(in.rows(peer, 1), peer, comm, stream_);
    return failed(sent) ? sent : api_.receive(out.rows(peer, 1), peer, comm, stream_);
  });
}

void NcclCommunicator::broadcast(TensorView x, int root) {
  if (x.empty()) return;
  group_->run("ncclBroadcast", [&](NcclComm comm) { return api_.broadcast(x, x, root, comm, stream_); });
}

void NcclCommunicator::send(ConstTensorView x, int to) {
  require(to != rank(), "a rank sends to itself");
  if (x.empty()) return;
  group_->run("ncclSend", [&](NcclComm comm) { return api_.send(x, to, comm, stream_); });
}

void NcclCommunicator::receive(TensorView x, int from) {
  require(from != rank(), "a rank receives from itself");
  if (x.empty()) return;
  group_->run("ncclRecv", [&](NcclComm comm) { return api_.receive(x, from, comm, stream_); });
}

void NcclCommunicator::for_each_peer(const char* name, const std::function<NcclResult(int, NcclComm)>& call) {
  group_->run(name, [&](NcclComm comm) {
    NcclResult result = api_.group_start();
    for (int peer = 0; peer < size() && !failed(result); ++peer) result = call(peer, comm);
    const NcclResult end = api_.group_end();
    return failed(result) ? result : end;
  });
}

}  // namespace maniple
