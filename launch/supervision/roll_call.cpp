#include <kernels/support/check.hpp>
#include <kernels/support/process_fields.hpp>
#include <launch/process/signals.hpp>
#include <launch/supervision/roll_call.hpp>
#include <parallel/self/self_world.hpp>

#include <fmt/ranges.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <vector>

namespace maniple {
namespace {

constexpr int max_entries = 1024;
constexpr int64_t long_before = 60;  // seconds; all ranks of a job start within this time

// A clock that all processes of a node share.
int64_t seconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec;
}

bool is_stopped(int process) {
  const std::vector<std::string> fields = process_fields(process);
  return !fields.empty() && fields[0] == "T";
}

// `count` entries from `first` on; 0: all. F_SETLK takes the lock, F_GETLK only tells whether it could.
bool locks(const FileDescriptor& file, int command, int first, int count) {
  struct flock lock = {F_WRLCK, SEEK_SET, first, count, 0};
  return ::fcntl(file.get(), command, &lock) == 0 && (command == F_SETLK || lock.l_type == F_UNLCK);
}

// Removes the files of jobs that were killed during the
// start: no process locks an entry, and the file is old.
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

RollCall::RollCall(const Launch& launch, const std::filesystem::path& folder)
    : launch_(launch),
      index_(launch.local_rank.value_or(launch.rank)),
      path_(folder / fmt::format("maniple-start-{}-{}", ::getuid(), launch.step)) {
  if (launch.step.empty() || index_ >= max_entries) return;
  remove_forgotten(folder, fmt::format("maniple-start-{}-", ::getuid()));
  file_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_) return;
  remove_on_sigterm(path_.c_str());
  mine_ = {seconds_now(), ::getpid(), launch.rank};
  known_ = locks(file_, F_SETLK, index_, 1) && write(State::in_init);
  bool all = known_ && launch.local_size > 0;
  for (int other = 0; all && other < launch.local_size; ++other) all = entry(other).state != State::absent;
  if (all) forget_name();
}

RollCall::~RollCall() {
  forget_name();
  remove_on_sigterm(nullptr);
  if (known_) write(State::watched);
}

bool RollCall::write(State state) {
  mine_.state = state;
  return ::pwrite(file_.get(), &mine_, sizeof(mine_), offset_of(index_)) == sizeof(mine_);
}

void RollCall::joined() {
  if (known_) write(State::joined);
  forget_name();
}

void RollCall::reported() {
  if (known_) write(State::reported);
}

void RollCall::forget_name() const {
  if (file_) ::unlink(path_.c_str());
}

// An entry written long before this process began is from an earlier job of the same name.
RollCall::Entry RollCall::entry(int index) const {
  Entry entry;
  const bool read = ::pread(file_.get(), &entry, sizeof(entry), offset_of(index)) == sizeof(entry);
  if (!read || entry.since < std::max<int64_t>(mine_.since - long_before, 1)) return {};
  if (index == index_ || entry.state == State::watched || entry.state == State::reported) return entry;
  if (locks(file_, F_GETLK, index, 1))
    entry.state = State::died;
  else if (is_stopped(entry.process))
    entry.state = State::stopped;
  return entry;
}

bool RollCall::reports() const {
  for (int index = 0; known_ && index < index_; ++index)
    if (entry(index).state >= State::in_init) return false;
  return true;
}

std::string RollCall::text() const {
  if (!known_)
    return "  this node: nothing is known of its ranks: the launcher names no job step, or there is no "
           "shared memory\n";
  const bool all_here = launch_.local_size == launch_.ranks;  // then a rank's entry is its number
  const int count = launch_.local_size > 0 ? std::min(launch_.local_size, max_entries) : max_entries;
  std::map<State, std::vector<std::string>> names;
  for (int index = 0; index < count; ++index) {
    const Entry its = entry(index);
    const bool came = its.state != State::absent;
    if (came || launch_.local_size > 0)
      names[its.state].push_back(came || all_here ? fmt::format("rank {}", came ? its.rank : index)
                                                  : fmt::format("the node's rank {}", index));
  }
  std::string lines;
  constexpr std::array words = {"not come to MPI_Init", "died",         "stopped", "ready", "in MPI_Init",
                                "behind MPI_Init",      "reported this"};
  for (const auto& [state, ranks] : names)
    lines +=
        fmt::format("  {}: {}: {}\n", host_name(), words[static_cast<size_t>(state)], fmt::join(ranks, ", "));
  if (launch_.local_size == 0) lines += "  the launcher does not tell how many ranks this node should have\n";
  return lines;
}

}  // namespace maniple
