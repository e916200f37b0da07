#include <kernels/support/check.hpp>
#include <launch/report.hpp>
#include <launch/run_directory/run_lock.hpp>
#include <launch/signals.hpp>
#include <launch/start_deadline.hpp>
#include <parallel/self/self_world.hpp>

#include <fmt/ranges.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>
#include <vector>

namespace maniple {
namespace {

using std::chrono::milliseconds;
using Seconds = std::chrono::duration<double>;

constexpr int most_places = 1024;
constexpr int64_t long_before = 60;  // seconds: ranks of a job start within less

// The same for all processes of a node.
int64_t seconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec;
}

bool stands_still(int process) {
  const std::vector<std::string> fields = process_fields(process);
  return !fields.empty() && fields[0] == "T";
}

// Of so many places from `first` on; 0: of all. F_SETLK takes it, F_GETLK only tells whether it could.
bool locks(const FileDescriptor& file, int command, int first, int count) {
  struct flock lock = {F_WRLCK, SEEK_SET, first, count, 0};
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

milliseconds until_notice(milliseconds limit) {
  return std::min<milliseconds>(limit / 5, std::chrono::minutes(1));
}

void say_who_is_missing(const RollCall& ranks, int count, milliseconds limit) {
  if (!ranks.speaks()) return;
  say(
      fmt::format("maniple: start: ranks are missing: {} have not found each other for {:g} s\n{}"
                  "  the job ends at {:g} s (--start-deadline)\n",
                  count > 0 ? fmt::format("the {} of this job", count) : "those of this job",
                  Seconds(until_notice(limit)).count(), ranks.text(), Seconds(limit).count()));
}

void say_that_it_ends(const RollCall& ranks, int rank, Seconds limit) {
  const Error error(ExitCode::fault,
                    fmt::format("the ranks did not find each other within {:g} s", limit.count()),
                    "a rank did not start, stands still, or cannot be reached over the network",
                    "look at the nodes of the job, and try a small MPI program in the same layout");
  if (!ranks.speaks()) return std::this_thread::sleep_for(std::chrono::seconds(2));  // the first end ends all
  say(error_block(error, fmt::format("rank {}", rank)) + ranks.text());
}

}  // namespace

RollCall::RollCall(const Launch& launch, const std::filesystem::path& folder)
    : launch_(launch),
      index_(launch.local_rank.value_or(launch.rank)),
      path_(folder / fmt::format("maniple-start-{}-{}", ::getuid(), launch.step)) {
  if (launch.step.empty() || index_ >= most_places) return;
  remove_forgotten(folder, fmt::format("maniple-start-{}-", ::getuid()));
  file_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_) return;
  take_along(path_.c_str());
  mine_ = {seconds_now(), ::getpid(), launch.rank};
  known_ = locks(file_, F_SETLK, index_, 1) && tell(State::in_init);
  bool all = known_ && launch.local_size > 0;
  for (int other = 0; all && other < launch.local_size; ++other) all = place(other).state != State::absent;
  if (all) forget_name();
}

RollCall::~RollCall() {
  forget_name();
  take_along(nullptr);
  if (known_) tell(State::watched);
}

bool RollCall::tell(State state) {
  mine_.state = state;
  return ::pwrite(file_.get(), &mine_, sizeof(mine_), offset_of(index_)) == sizeof(mine_);
}

void RollCall::joined() {
  if (known_) tell(State::joined);
  forget_name();
}

void RollCall::forget_name() const {
  if (file_) ::unlink(path_.c_str());
}

// What was written long before this process began is of an earlier job of the same name.
RollCall::Place RollCall::place(int index) const {
  Place place;
  const bool read = ::pread(file_.get(), &place, sizeof(place), offset_of(index)) == sizeof(place);
  if (!read || place.since < std::max<int64_t>(mine_.since - long_before, 1)) return {};
  if (index == index_ || place.state == State::watched) return place;
  if (locks(file_, F_GETLK, index, 1))
    place.state = State::died;
  else if (stands_still(place.process))
    place.state = State::stopped;
  return place;
}

bool RollCall::speaks() const {
  for (int index = 0; known_ && index < index_; ++index)
    if (place(index).state >= State::in_init) return false;
  return true;
}

std::string RollCall::text() const {
  if (!known_)
    return "  this node: nothing is known of its ranks: the launcher names no job step, or there is no "
           "shared memory\n";
  const bool all_here = launch_.local_size == launch_.ranks;  // then a rank's place is its number
  const int count = launch_.local_size > 0 ? std::min(launch_.local_size, most_places) : most_places;
  std::map<State, std::vector<std::string>> names;
  for (int index = 0; index < count; ++index) {
    const Place its = place(index);
    const bool came = its.state != State::absent;
    if (came || launch_.local_size > 0)
      names[its.state].push_back(came || all_here ? fmt::format("rank {}", came ? its.rank : index)
                                                  : fmt::format("the node's rank {}", index));
  }
  std::string lines;
  constexpr std::array words = {"not come to MPI_Init", "died",           "stopped", "ready",
                                "in MPI_Init",          "behind MPI_Init"};
  for (const auto& [state, ranks] : names)
    lines +=
        fmt::format("  {}: {}: {}\n", host_name(), words[static_cast<size_t>(state)], fmt::join(ranks, ", "));
  if (launch_.local_size == 0) lines += "  the launcher does not tell how many ranks this node should have\n";
  return lines;
}

StartDeadline::StartDeadline(const Launch& launch, FaultHandler on_fault, milliseconds limit)
    : ranks_(launch),
      notice_(until_notice(limit),
              [this, count = launch.ranks, limit] { say_who_is_missing(ranks_, count, limit); }),
      end_(limit + std::chrono::seconds(launch.rank == 0 ? 0 : 10),
           [this, rank = launch.rank, on_fault = std::move(on_fault), limit] {
             say_that_it_ends(ranks_, rank, limit);
             ranks_.forget_name();
             on_fault(static_cast<int>(ExitCode::fault));
           }) {}

}  // namespace maniple
