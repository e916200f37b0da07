#include <runtime/control/neighbours.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <random>
#include <span>
#include <thread>

namespace maniple {

namespace {

using std::chrono::milliseconds;

// Of the socket (an abstract one, which no file system holds) and of the memory.
std::string drawn_name() {
  std::random_device device;
  return fmt::format("/maniple-{:08x}{:08x}", device(), device());
}

// Null where there is no such shared memory. An existing one keeps its content. What is not reserved at once
// would end us by SIGBUS where the memory is full.
SharedPulse map_pulse(const std::string& name, int flags) {
  const FileDescriptor file(::shm_open(name.c_str(), O_RDWR | flags, 0600));
  if (!file || (flags != 0 && ::posix_fallocate(file.get(), 0, sizeof(Pulse)) != 0)) return nullptr;
  void* memory = ::mmap(nullptr, sizeof(Pulse), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  return SharedPulse(flags != 0 ? new (memory) Pulse : static_cast<Pulse*>(memory));
}

SharedPulse private_pulse() {
  void* memory = ::mmap(nullptr, sizeof(Pulse), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return SharedPulse(new (memory) Pulse);
}

// A socket that is bound to the name by ::bind, or connected by ::connect; none where that fails.
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

void UnmapPulse::operator()(Pulse* pulse) const { ::munmap(pulse, sizeof(Pulse)); }

bool Neighbours::is_there(const Neighbour& other) {
  pollfd end{other.socket.get(), 0, 0};
  return other.socket && (::poll(&end, 1, 0) <= 0 || (end.revents & (POLLHUP | POLLERR)) == 0);
}

// Nobody accepts the connections: they end with the listener all the same.
Neighbours::Neighbours(World& world) : rank_(world.rank()), waker_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  const std::string name = drawn_name();
  pulse_ = map_pulse(name, O_CREAT | O_EXCL);
  const std::vector<Place>& places = world.places();
  const auto me = static_cast<size_t>(rank_);
  if (pulse_) listener_ = attached_socket(name, ::bind);
  const bool listens = listener_ && ::listen(listener_.get(), places[me].local_size) == 0;
  if (!pulse_) pulse_ = private_pulse();
  const std::vector<std::string> names = world.all_gather_bytes(listens ? name : "");
  for (size_t rank = 0; rank < names.size(); ++rank) {
    if (rank == me && !first_) first_ = pulse_.get();
    if (rank == me || places[rank].node != places[me].node || names[rank].empty()) continue;
    Neighbour other{static_cast<int>(rank), map_pulse(names[rank], 0),
                    attached_socket(names[rank], ::connect)};
    if (!other.pulse || !other.socket) continue;
    if (!first_) first_ = other.pulse.get();
    others_.push_back(std::move(other));
  }
  world.barrier();
  ::shm_unlink(name.c_str());
}

Neighbours::~Neighbours() { pulse_->phase = Phase::gone; }

const Pulse* Neighbours::pulse_of(int rank) const {
  const auto found = std::ranges::find(others_, rank, &Neighbour::rank);
  return found == others_.end() ? nullptr : found->pulse.get();
}

std::optional<int> Neighbours::wait(milliseconds timeout) {
  std::vector<pollfd> polled{{waker_.get(), POLLIN, 0}};
  {
    const std::lock_guard lock(mutex_);
    for (const Neighbour& other : others_) polled.push_back({other.socket.get(), 0, 0});
  }
  ::poll(polled.data(), polled.size(), static_cast<int>(timeout.count()));
  eventfd_t calls = 0;
  ::eventfd_read(waker_.get(), &calls);
  const std::lock_guard lock(mutex_);
  for (size_t index = 0; index < others_.size(); ++index) {
    if ((polled[index + 1].revents & (POLLHUP | POLLERR)) == 0 || !others_[index].socket) continue;
    others_[index].socket.reset();
    if (others_[index].pulse->phase != Phase::gone) return others_[index].rank;
  }
  return std::nullopt;
}

void Neighbours::wake() { ::eventfd_write(waker_.get(), 1); }

template <typename Predicate>
std::optional<int> Neighbours::find(Predicate holds) const {
  const auto found =
      std::ranges::find_if(others_, [&](const Neighbour& other) { return is_there(other) && holds(other); });
  return found == others_.end() ? std::nullopt : std::optional(found->rank);
}

std::optional<int> Neighbours::behind(Phase phase) const {
  return find([&](const Neighbour& other) { return other.pulse->phase < phase; });
}

std::optional<int> Neighbours::leave(milliseconds limit) {
  constexpr milliseconds look(1);
  const bool is_last = first_ == pulse_.get();
  const auto awaited = [&] {
    const std::optional<int> silent = behind(Phase::gone);
    return silent || !is_last ? silent : find([](const Neighbour&) { return true; });
  };
  pulse_->phase = Phase::gone;
  std::optional<int> left = awaited();
  for (milliseconds waited{}; left && waited < limit; waited += look) {
    std::this_thread::sleep_for(look);
    left = awaited();
  }
  return left;
}

bool Neighbours::takes_the_word(int from) { return first_->speaker.compare_exchange_strong(from, rank_); }

}  // namespace maniple
