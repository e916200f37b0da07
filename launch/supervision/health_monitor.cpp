#include <launch/output/report.hpp>
#include <launch/supervision/health_monitor.hpp>
#include <runtime/collective_phase.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

namespace maniple {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

constexpr const char* why_all_end = "the ranks of a job wait for each other, so it would hang for ever";

std::string nor_have(std::vector<int> ranks) {
  if (ranks.empty()) return "";
  const size_t shown = std::min<size_t>(ranks.size(), 8), more = ranks.size() - shown;
  ranks.resize(shown);
  return fmt::format(", nor {} rank{} {}{}", shown == 1 ? "has" : "have", shown == 1 ? "" : "s",
                     fmt::join(ranks, ", "), more == 0 ? "" : fmt::format(" and {} more", more));
}

// What travels between a rank and rank 0.
struct Beat {
  Heartbeat heartbeat;
  RankVitals vitals;
};

}  // namespace

HealthMonitor::HealthMonitor(World& world, NodePeers& peers, const Deadlines& deadlines, OnFault on_fault,
                             VitalsObserver* vitals)
    : world_(world),
      deadlines_(deadlines),
      on_fault_(std::move(on_fault)),
      peers_(peers),
      vitals_(vitals),
      channel_(world.make_channel()),
      watchdog_(deadlines.progress, [&world] { world.end_process(static_cast<int>(ExitCode::fault)); }) {
  ranks_.resize(static_cast<size_t>(world.rank() == 0 ? world.size() : 1));
  restart_deadlines();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

HealthMonitor::~HealthMonitor() {
  thread_.request_stop();
  peers_.wake();
}

void HealthMonitor::run(const std::stop_token& stop) try {
  while (!stop.stop_requested()) {
    watchdog_.feed();
    send_heartbeats();
    receive_heartbeats();
    check_all();
    if (const std::optional<int> dead = peers_.wait(deadlines_.heartbeat)) report_dead(*dead);
  }
} catch (const Error& error) {  // perhaps of the network: no other thread reports it
  report_and_end_job(error);
} catch (const std::exception& error) {
  report_and_end_job(Error(ExitCode::internal, error.what()));
}

void HealthMonitor::send_heartbeats() {
  const Beat now{activity().heartbeat(), vitals_ ? vitals_->own(activity()) : RankVitals{}};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&now, 1));
  channel_.leaf->try_send(0, bytes);
  if (!channel_.root) return;
  for (int rank = 0; rank < world_.size(); ++rank) channel_.root->try_send(rank, bytes);
}

void HealthMonitor::receive_heartbeats() {
  const auto receive = [this](Mailbox& mailbox) {
    while (const std::optional<Message> message = mailbox.try_receive()) {
      Beat beat;
      if (message->bytes.size() != sizeof beat) continue;
      std::memcpy(&beat, message->bytes.data(), sizeof beat);
      if (vitals_ && world_.rank() == 0) vitals_->heard(message->from, beat.vitals);
      RankHealth& health = ranks_[world_.rank() == 0 ? static_cast<size_t>(message->from) : 0];
      health.heard = Clock::now();
      if (beat.heartbeat != health.last) health.progressed = health.heard;
      health.last = beat.heartbeat;
    }
  };
  if (!channel_.root) return receive(*channel_.leaf);
  while (channel_.leaf->try_receive()) {  // rank 0's heartbeats to itself
  }
  receive(*channel_.root);
}

void HealthMonitor::check_all() {
  if (const std::optional<std::string> fault = world_.fault())
    report_and_end_job({ExitCode::fault, *fault,
                        "the ranks of a group wait for each other, so the job would hang for ever",
                        "NCCL_DEBUG=INFO shows what NCCL did; `transport` host goes without it"});
  const Clock::time_point now = Clock::now();
  // This process itself was suspended: it could not hear the others.
  if (now - checked_ > deadlines_.heartbeat + deadlines_.silence / 2) restart_deadlines();
  checked_ = now;
  check_disk();
  check_coordinator();
  // Only one rank should report. Rank 0 sees most faults. All miss a silent rank 0
  // at once: rank 1 reports it first, the others only if that did not end the job.
  const Clock::duration patience = std::min(world_.rank(), 2) * deadlines_.heartbeat;
  for (size_t index = 0; index < ranks_.size(); ++index) {
    const RankHealth& health = ranks_[index];
    const int rank = world_.rank() == 0 ? static_cast<int>(index) : 0;
    const Clock::duration silence = now - health.heard;
    if (silence > deadlines_.silence + patience)
      report_suspect(rank, fmt::format("has not been heard of for {:.0f} s", seconds(silence)));
  }
  if (world_.rank() == 0) check_progress();
}

// Ranks that wait for the suspect make no progress either, and expire a heartbeat sooner or
// later. The suspect is the rank that waits for no other rank, or is furthest behind. If
// several are (the host cannot see who waits on a GPU), the message names them all. Outside of
// steps all ranks wait for ranks that still load or write, so progress of one counts for all.
void HealthMonitor::check_progress() {
  const Clock::time_point moved = std::ranges::max(ranks_, {}, &RankHealth::progressed).progressed;
  const auto left = [&](const RankHealth& health) {
    if (health.last.phase == Phase::idle) return Clock::duration::max();
    return health.last.phase == Phase::step ? health.progressed + deadlines_.progress - checked_
                                            : moved + deadlines_.outside_steps - checked_;
  };
  if (std::ranges::none_of(ranks_,
                           [&](const RankHealth& health) { return left(health) < Clock::duration{}; }))
    return;
  const auto position = [](const RankHealth& health) {
    return std::tuple(health.last.waits, health.last.step, health.last.layer);
  };
  const auto suspicion = [&](const RankHealth& health) {
    return std::tuple(left(health) > 2 * deadlines_.heartbeat, position(health));
  };
  const auto suspect = std::ranges::min_element(ranks_, {}, suspicion);
  std::vector<int> alike;
  for (auto health = ranks_.begin(); health != ranks_.end(); ++health)
    if (health != suspect && health->last.phase == suspect->last.phase &&
        position(*health) == position(*suspect) && checked_ - health->progressed > deadlines_.progress / 2)
      alike.push_back(static_cast<int>(health - ranks_.begin()));
  report_suspect(static_cast<int>(suspect - ranks_.begin()),
                 fmt::format("has made no progress for {:.0f} s{}", seconds(checked_ - suspect->progressed),
                             nor_have(alike)));
}

void HealthMonitor::check_disk() {
  const uint32_t disk = activity().disk;
  const bool moved = disk != std::exchange(disk_, disk);
  if (disk % 2 == 0 || moved) disk_changed_ = checked_;
  if (moved && activity().phase != Phase::step) ranks_[0].progressed = checked_;
  if (checked_ - disk_changed_ > deadlines_.progress)
    report_and_end_job(
        {ExitCode::fault,
         fmt::format("the disk has taken nothing for {:.0f} s", seconds(checked_ - disk_changed_)),
         "what finished since then is in memory only",
         "look at the file system of the results, then run the same command again (without a run "
         "directory: `overwrite`)"});
}

// A stuck coordinator leaves all ranks idle, which is no fault of theirs.
void HealthMonitor::check_coordinator() {
  const uint64_t turns = activity().turns;
  if (turns == 0 || turns != std::exchange(turns_, turns)) turned_ = checked_;
  if (checked_ - turned_ > deadlines_.progress)
    report_and_end_job(
        {ExitCode::fault,
         fmt::format("rank 0 neither reads requests nor plans steps for {:.0f} s",
                     seconds(checked_ - turned_)),
         "all ranks wait for its plans, so the job would hang for ever",
         "look at the file system of the input, and at who reads stderr (a full pipe blocks)"});
}

void HealthMonitor::restart_deadlines() {
  const Clock::time_point now = Clock::now();
  for (RankHealth& health : ranks_) health.heard = health.progressed = now;
  disk_changed_ = turned_ = checked_ = now;
}

// If a whole job or node is killed, several ranks die at once, mostly this one too before it can report.
void HealthMonitor::report_dead(int rank) {
  const std::optional<int> also_dead = peers_.wait(milliseconds(50));
  end_job(
      {.rank = rank,
       .last_seen = peers_.activity_of(rank)->heartbeat(),
       .error = {ExitCode::fault, "has died", why_all_end,
                 "the launcher may name the signal; if nobody sent SIGKILL, the system did: memory ran out"},
       .noticed_by = world_.rank(),
       .death = true,
       .from_outside = also_dead.has_value()},
      also_dead);
}

void HealthMonitor::report_suspect(int rank, const std::string& what) {
  end_job({.rank = rank,
           .last_seen = ranks_[world_.rank() == 0 ? static_cast<size_t>(rank) : 0].last,
           .error = {ExitCode::fault, what, why_all_end,
                     "look at that node; results that were already written are complete"},
           .noticed_by = world_.rank(),
           .from_outside = node_is_gone(rank)});
}

// Only rank 0 knows it, and only for nodes with several ranks.
bool HealthMonitor::node_is_gone(int rank) const {
  const std::vector<RankLocation>& locations = world_.locations();
  const int node = locations[static_cast<size_t>(rank)].node;
  if (ranks_.size() < 2 || node == 0 || locations[static_cast<size_t>(rank)].local_size < 2) return false;
  for (size_t other = 0; other < ranks_.size(); ++other)
    if (locations[other].node == node && checked_ - ranks_[other].heard < deadlines_.silence / 2)
      return false;
  return true;
}

void HealthMonitor::leave_together() {
  activity().phase = Phase::end;
  world_.barrier();
}

ExitCode HealthMonitor::supervise(const std::function<ExitCode()>& work,
                                  const std::function<void(ExitCode)>& give_up) try {
  const ExitCode code = work();
  leave_together();
  return code;
} catch (const SilentExit&) {
  leave_together();
  throw;
} catch (const CollectiveError& error) {
  give_up(error.code());
  report_known_to_all(error, error.rank());
  leave_together();
  throw;
} catch (const std::exception& exception) {
  const Error error = error_of(exception);
  give_up(error.code());
  report_and_end_job(error);
}

void HealthMonitor::report_known_to_all(const Error& error, int rank) {
  if (!peers_.claim_fault_report()) return;
  on_fault_({.rank = rank,
             .last_seen = activity().heartbeat(),
             .error = error,
             .noticed_by = world_.rank(),
             .known_to_all = true});
  peers_.mark_fault_reported();
}

// Waits a moment: the cause may be the death of another rank, which the health thread then reports.
void HealthMonitor::report_and_end_job(const Error& error) {
  if (error.code() == ExitCode::fault) std::this_thread::sleep_for(milliseconds(100));
  end_job({.rank = world_.rank(),
           .last_seen = activity().heartbeat(),
           .error = error,
           .noticed_by = world_.rank()});
}

// One rank of a node reports a fault. The others give it time, and take over if it dies first.
void HealthMonitor::end_job(const FaultReport& fault, std::optional<int> also_dead) {
  const int code = static_cast<int>(fault.error.code());
  const Watchdog report_deadline(deadlines_.report, [&] { world_.end_process(code); });
  bool reports = peers_.claim_fault_report() || peers_.claim_fault_report(fault.rank) ||
                 (also_dead && peers_.claim_fault_report(*also_dead));
  while (!reports) {
    const std::optional<int> dead = peers_.wait(deadlines_.report);
    reports = dead && peers_.claim_fault_report(*dead);
  }
  on_fault_(fault);
  peers_.mark_fault_reported();
  world_.abort(code);
  world_.end_process(code);  // for compilers that forget [[noreturn]] in virtual calls
}

}  // namespace maniple
