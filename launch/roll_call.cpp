#include <launch/roll_call.hpp>
#include <launch/signals.hpp>
#include <parallel/self/self_world.hpp>

#include <fmt/ranges.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

namespace maniple {
namespace {

constexpr int most_places = 1024;
constexpr int64_t long_before = 60;  // seconds: ranks of a job start within less

// The same for all processes of a node.
int64_t seconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec;
}

bool stands_still(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  const size_t name_end = stat.rfind(')');  // a name may hold anything
  return name_end != std::string::npos && stat.compare(name_end, 3, ") T") == 0;
}

// Of so many places from `first` on; 0: of all. F_SETLK takes it, F_GETLK only tells whether it could.
bool locks(const FileDescriptor& file, int command, int first, int count) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = count;
  return ::fcntl(file.get(), command, &lock) == 0 && (command == F_SETLK || lock.l_type == F_UNLCK);
}

// Of jobs whose processes were all killed before they had come: nobody holds a place, and not because it is
// new.
void remove_forgotten(const std::filesystem::path& folder, const std::string& prefix) {
  std::error_code ignored;
  const auto new_ones = std::filesystem::file_time_type::clock::now() - std::chrono::seconds(long_before);
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (!entry.path().filename().native().starts_with(prefix)) continue;
    const FileDescriptor file(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (file && entry.last_write_time(ignored) < new_ones && locks(file, F_GETLK, 0, 0))
      ::unlink(entry.path().c_str());
  }
}

}  // namespace

struct RollCall::Place {
  std::atomic<int64_t> since;  // 0: nobody came
  std::atomic<int32_t> process;
  std::atomic<int32_t> rank;
  std::atomic<State> state;
};

RollCall::RollCall(const Launch& launch, const std::filesystem::path& folder)
    : launch_(launch),
      mine_(launch.local_rank.value_or(launch.rank)),
      path_(folder / fmt::format("maniple-start-{}-{}", ::getuid(), launch.step)) {
  constexpr size_t bytes = most_places * sizeof(Place);
  if (launch.step.empty() || mine_ >= most_places) return;
  remove_forgotten(folder, fmt::format("maniple-start-{}-", ::getuid()));
  file_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_) return;
  take_along(path_.c_str());
  if (!locks(file_, F_SETLK, mine_, 1)) return;
  // What is not reserved at once would end us by SIGBUS where the memory is full.
  void* memory = MAP_FAILED;
  if (::posix_fallocate(file_.get(), 0, bytes) == 0)
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (memory == MAP_FAILED) return;
  places_ = static_cast<Place*>(memory);
  enter();
}

RollCall::~RollCall() {
  forget_name();
  take_along(nullptr);
  if (!places_) return;
  places_[mine_].state = State::watched;
  ::munmap(places_, most_places * sizeof(Place));
}

void RollCall::enter() {
  Place& place = places_[mine_];
  place.process = ::getpid();
  place.rank = launch_.rank;
  place.state = State::in_init;
  place.since = seconds_now();
  bool all = launch_.local_size > 0;
  for (int other = 0; other < launch_.local_size; ++other) all = all && state(other) != State::absent;
  if (all) forget_name();
}

void RollCall::joined() {
  if (places_) places_[mine_].state = State::joined;
  forget_name();
}

void RollCall::forget_name() const {
  if (file_) ::unlink(path_.c_str());
}

// What was written long before this process began is of an earlier job of the same name.
RollCall::State RollCall::state(int index) const {
  const Place& place = places_[index];
  if (place.since < std::max<int64_t>(places_[mine_].since - long_before, 1)) return State::absent;
  if (index != mine_ && place.state != State::watched) {
    if (locks(file_, F_GETLK, index, 1)) return State::died;
    if (stands_still(place.process)) return State::stopped;
  }
  return place.state;
}

int RollCall::places_known() const {
  return launch_.local_size > 0 ? std::min(launch_.local_size, most_places) : most_places;
}

bool RollCall::speaks() const {
  for (int place = 0; places_ && place < mine_; ++place)
    if (state(place) >= State::in_init) return false;
  return true;
}

std::string RollCall::text() const {
  if (!places_)
    return "  this node: nothing is known of its ranks: the launcher names no job step, or there is no "
           "shared memory\n";
  const bool all_here = launch_.local_size == launch_.ranks;  // then a rank's place is its number
  std::vector<std::vector<std::string>> names(static_cast<size_t>(State::joined) + 1);
  for (int place = 0; place < places_known(); ++place) {
    const State its = state(place);
    if (its == State::absent && launch_.local_size == 0) continue;
    names[static_cast<size_t>(its)].push_back(its != State::absent
                                                  ? fmt::format("rank {}", places_[place].rank.load())
                                              : all_here ? fmt::format("rank {}", place)
                                                         : fmt::format("the node's rank {}", place));
  }
  std::string lines;
  const char* const words[] = {"not come to MPI_Init", "died",           "stopped", "ready",
                               "in MPI_Init",          "behind MPI_Init"};
  for (size_t index = 0; index < names.size(); ++index)
    if (!names[index].empty())
      lines += fmt::format("  {}: {}: {}\n", host_name(), words[index], fmt::join(names[index], ", "));
  if (launch_.local_size == 0) lines += "  the launcher does not tell how many ranks this node should have\n";
  return lines;
}

}  // namespace maniple
