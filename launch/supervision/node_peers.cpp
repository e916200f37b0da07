#include <launch/supervision/node_peers.hpp>
#include <parallel/shared_memory.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <new>
#include <thread>

namespace maniple {
namespace {

using std::chrono::milliseconds;

using SharedActivity = std::shared_ptr<RankActivity>;

// Null if there is no such shared memory.
SharedActivity create_activity(const std::string& name) {
  SharedMemory memory = create_shared_memory(name, sizeof(RankActivity));
  if (!memory) return nullptr;
  auto* activity = new (memory.get()) RankActivity;
  return {std::move(memory), activity};
}
SharedActivity open_activity(const std::string& name) {
  SharedMemory memory = open_shared_memory(name, sizeof(RankActivity));
  auto* activity = reinterpret_cast<RankActivity*>(memory.get());
  return {std::move(memory), activity};
}

// A socket that ::bind binds to the name, or ::connect connects to it; none if that fails.
template <typename Attach>
FileDescriptor attached_socket(const std::string& name, Attach attach) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);  // a zero byte first: abstract
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket && attach(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    socket.reset();
  return socket;
}

}  // namespace

bool NodePeers::is_alive(const Peer& other) {
  pollfd end{other.socket.get(), 0, 0};
  return other.socket && (::poll(&end, 1, 0) <= 0 || (end.revents & (POLLHUP | POLLERR)) == 0);
}

// The listener never accepts the connections: they close with it all the same.
NodePeers::NodePeers(World& world) : rank_(world.rank()), waker_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  const std::string name = drawn_shared_name();  // of the memory and of the socket, an abstract one
  activity_ = create_activity(name);
  const std::vector<RankLocation>& locations = world.locations();
  const auto me = static_cast<size_t>(rank_);
  if (activity_) listener_ = attached_socket(name, ::bind);
  const bool listens = listener_ && ::listen(listener_.get(), locations[me].local_size) == 0;
  if (!activity_) activity_ = std::make_shared<RankActivity>();
  const std::vector<std::string> names = world.all_gather_bytes(listens ? name : "");
  for (size_t rank = 0; rank < names.size(); ++rank) {
    if (rank == me && !first_) first_ = activity_.get();
    if (rank == me || locations[rank].node != locations[me].node || names[rank].empty()) continue;
    Peer other{static_cast<int>(rank), open_activity(names[rank]), attached_socket(names[rank], ::connect)};
    if (!other.activity || !other.socket) continue;
    if (!first_) first_ = other.activity.get();
    others_.push_back(std::move(other));
  }
  world.barrier();
  unlink_shared_memory(name);
}

NodePeers::~NodePeers() { activity_->phase = Phase::gone; }

const RankActivity* NodePeers::activity_of(int rank) const {
  const auto found = std::ranges::find(others_, rank, &Peer::rank);
  return found == others_.end() ? nullptr : found->activity.get();
}

std::optional<int> NodePeers::wait(milliseconds timeout) {
  std::vector<pollfd> polled{{waker_.get(), POLLIN, 0}};
  {
    const std::lock_guard lock(mutex_);
    for (const Peer& other : others_) polled.push_back({other.socket.get(), 0, 0});
  }
  ::poll(polled.data(), polled.size(), static_cast<int>(timeout.count()));
  eventfd_t calls = 0;
  ::eventfd_read(waker_.get(), &calls);
  const std::lock_guard lock(mutex_);
  for (size_t index = 0; index < others_.size(); ++index) {
    if ((polled[index + 1].revents & (POLLHUP | POLLERR)) == 0 || !others_[index].socket) continue;
    others_[index].socket.reset();
    if (others_[index].activity->phase != Phase::gone) return others_[index].rank;
  }
  return std::nullopt;
}

void NodePeers::wake() { ::eventfd_write(waker_.get(), 1); }

template <typename Predicate>
std::optional<int> NodePeers::find(Predicate holds) const {
  const auto found =
      std::ranges::find_if(others_, [&](const Peer& other) { return is_alive(other) && holds(other); });
  return found == others_.end() ? std::nullopt : std::optional(found->rank);
}

std::optional<int> NodePeers::behind(Phase phase) const {
  return find([&](const Peer& other) { return other.activity->phase < phase; });
}

std::optional<int> NodePeers::leave(milliseconds limit) {
  constexpr milliseconds look(1);
  const bool is_last = first_ == activity_.get();
  const auto awaited = [&] {
    const std::optional<int> silent = behind(Phase::gone);
    return silent || !is_last ? silent : find([](const Peer&) { return true; });
  };
  activity_->phase = Phase::gone;
  std::optional<int> left = awaited();
  for (milliseconds waited{}; left && waited < limit; waited += look) {
    std::this_thread::sleep_for(look);
    left = awaited();
  }
  return left;
}

bool NodePeers::claim_fault_report(int from) {
  return first_->fault_reporter.compare_exchange_strong(from, rank_);
}

}  // namespace maniple
