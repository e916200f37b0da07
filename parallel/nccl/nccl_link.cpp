#include <parallel/nccl/nccl_link.hpp>

#include <limits>
#include <utility>

namespace maniple {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();  // seconds
constexpr int sender = 0, receiver = 1;                               // ranks of a direction's group

}  // namespace

NcclLink::NcclLink(NcclApi& api, std::shared_ptr<NcclGroup> in, std::shared_ptr<NcclGroup> out,
                   const StageRows& rows, Device& device)
    : api_(api),
      device_(device),
      in_(direction(std::move(in), rows)),
      out_(direction(std::move(out), rows)) {}

NcclLink::Direction NcclLink::direction(std::shared_ptr<NcclGroup> group, const StageRows& rows) {
  Direction made{std::move(group), {}, nullptr};
  if (!made.group) return made;
  for (Tensor& slot : made.slots) slot = Tensor(device_, rows.dtype, {rows.most, rows.width});
  made.lane = api_.make_lane(device_);
  return made;
}

// Collective: the first stages close their groups first.
NcclLink::~NcclLink() {
  if (in_.group) in_.group->close();
  if (out_.group) out_.group->close();
}

void NcclLink::send(const StageStep& /*step*/, ConstTensorView rows) {
  const size_t turn = out_.turn();
  const TensorView slot = out_.slots[turn].view().rows(0, rows.shape[0]);
  require(rows.shape == slot.shape && rows.dtype == slot.dtype, "rows for the next stage");
  out_.lane->device_follows(turn);  // the send before the last is done
  device_.copy(slot.data, rows.data, slot.bytes());
  out_.lane->mark_device(turn);
  out_.lane->follow_device(turn);
  out_.group->run("ncclSend to the next stage",
                  [&](NcclComm comm) { return api_.send(slot, receiver, comm, out_.lane->stream()); });
  out_.lane->mark(turn);
  ++out_.used;
  counts_.add(CollectiveOp::send, slot.bytes(), unknown);
}

TensorView NcclLink::take(const StageStep& /*step*/, int64_t rows) {
  const size_t turn = in_.turn();
  const TensorView slot = in_.slots[turn].view().rows(0, rows);
  in_.lane->follow_device(turn);  // the step before the last is done with it
  in_.group->run("ncclRecv from the stage before",
                 [&](NcclComm comm) { return api_.receive(slot, sender, comm, in_.lane->stream()); });
  in_.lane->mark(turn);
  in_.lane->device_follows(turn);
  counts_.add(CollectiveOp::receive, slot.bytes(), unknown);
  return slot;
}

void NcclLink::release() {
  in_.lane->mark_device(in_.turn());
  ++in_.used;
}

}  // namespace maniple
