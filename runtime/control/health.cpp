#include <runtime/control/health.hpp>

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

}  // namespace

Deadlines Deadlines::within(milliseconds all_gone) {
  Deadlines deadlines;
  deadlines.silence = all_gone / 3;
  deadlines.beat = std::min(deadlines.beat, deadlines.silence / 10);
  deadlines.progress = all_gone * 3 / 4;
  deadlines.last_words = std::min(deadlines.last_words, all_gone / 6);
  return deadlines;
}

Health::Health(World& world, Neighbours& neighbours, const Deadlines& deadlines, TellFault tell)
    : world_(world),
      deadlines_(deadlines),
      tell_(std::move(tell)),
      neighbours_(neighbours),
      channel_(world.make_channel()),
      watchdog_(deadlines.progress, [&world] { world.end_process(static_cast<int>(ExitCode::fault)); }) {
  ranks_.resize(static_cast<size_t>(world.rank() == 0 ? world.size() : 1));
  start_deadlines_again();
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Health::~Health() {
  thread_.request_stop();
  neighbours_.wake();
}

void Health::watch(const std::stop_token& stop) try {
  while (!stop.stop_requested()) {
    watchdog_.feed();
    beat();
    listen();
    judge();
    if (const std::optional<int> dead = neighbours_.wait(deadlines_.beat)) accuse_dead(*dead);
  }
} catch (const Error& error) {  // of the network, perhaps: nobody else would speak of it
  tell_alone(error);
} catch (const std::exception& error) {
  tell_alone(Error(ExitCode::internal, error.what()));
}

void Health::beat() {
  const Whereabouts now = pulse().where();
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&now, 1));
  channel_.leaf->try_send(0, bytes);
  if (!channel_.center) return;
  for (int rank = 0; rank < world_.size(); ++rank) channel_.center->try_send(rank, bytes);
}

void Health::listen() {
  const auto hear = [this](Mailbox& mailbox) {
    while (const std::optional<Message> message = mailbox.try_receive()) {
      Whereabouts where;
      if (message->bytes.size() != sizeof where) continue;
      std::memcpy(&where, message->bytes.data(), sizeof where);
      RankHealth& health = ranks_[world_.rank() == 0 ? static_cast<size_t>(message->from) : 0];
      health.heard = Clock::now();
      if (where != health.last) health.progressed = health.heard;
      health.last = where;
    }
  };
  if (!channel_.center) return hear(*channel_.leaf);
  while (channel_.leaf->try_receive()) {  // rank 0 to itself
  }
  hear(*channel_.center);
}

void Health::judge() {
  if (const std::optional<std::string> fault = world_.fault())
    tell_alone({ExitCode::fault, *fault,
                "the ranks of a group wait for each other, so the job would hang for ever",
                "NCCL_DEBUG=INFO shows what NCCL did; `transport` host goes without it"});
  const Clock::time_point now = Clock::now();
  // This process itself stood still (a suspended job): the others did not get a chance to be heard.
  if (now - judged_ > deadlines_.beat + deadlines_.silence / 2) start_deadlines_again();
  judged_ = now;
  judge_disk();
  judge_coordinator();
  // One voice: rank 0 notices most, and all miss a silent rank 0 at once, so rank 1 speaks, and the others
  // only if that did not end the job.
  const Clock::duration patience = std::min(world_.rank(), 2) * deadlines_.beat;
  for (size_t index = 0; index < ranks_.size(); ++index) {
    const RankHealth& health = ranks_[index];
    const int rank = world_.rank() == 0 ? static_cast<int>(index) : 0;
    const Clock::duration silence = now - health.heard;
    if (silence > deadlines_.silence + patience)
      accuse(rank, fmt::format("has not been heard of for {:.0f} s", seconds(silence)));
  }
  if (world_.rank() == 0) judge_progress();
}

// Those that wait for a rank stand still with it, and expire a beat sooner or later. Of them all the culprit
// waits for nobody, or is the one that is furthest behind; where several are (who waits on a GPU cannot be
// seen from its host), the message names them all. Outside of steps all wait for whoever still loads
// or writes, so that one that moves speaks for all.
void Health::judge_progress() {
  const Clock::time_point moved = std::ranges::max(ranks_, {}, &RankHealth::progressed).progressed;
  const auto left = [&](const RankHealth& health) {
    if (health.last.phase == Phase::idle) return Clock::duration::max();
    return health.last.phase == Phase::step ? health.progressed + deadlines_.progress - judged_
                                            : moved + deadlines_.start_up - judged_;
  };
  if (std::ranges::none_of(ranks_,
                           [&](const RankHealth& health) { return left(health) < Clock::duration{}; }))
    return;
  const auto place = [](const RankHealth& health) {
    return std::tuple(health.last.waits, health.last.step, health.last.layer);
  };
  const auto guilt = [&](const RankHealth& health) {
    return std::tuple(left(health) > 2 * deadlines_.beat, place(health));
  };
  const auto culprit = std::ranges::min_element(ranks_, {}, guilt);
  std::vector<int> alike;
  for (auto health = ranks_.begin(); health != ranks_.end(); ++health)
    if (health != culprit && health->last.phase == culprit->last.phase && place(*health) == place(*culprit) &&
        judged_ - health->progressed > deadlines_.progress / 2)
      alike.push_back(static_cast<int>(health - ranks_.begin()));
  accuse(static_cast<int>(culprit - ranks_.begin()),
         fmt::format("has made no progress for {:.0f} s{}", seconds(judged_ - culprit->progressed),
                     nor_have(alike)));
}

void Health::judge_disk() {
  const uint32_t disk = pulse().disk;
  const bool moved = disk != std::exchange(disk_, disk);
  if (disk % 2 == 0 || moved) disk_changed_ = judged_;
  if (moved && pulse().phase != Phase::step) ranks_[0].progressed = judged_;
  if (judged_ - disk_changed_ > deadlines_.progress)
    tell_alone({ExitCode::fault,
                fmt::format("the disk has taken nothing for {:.0f} s", seconds(judged_ - disk_changed_)),
                "what finished since then is in memory only",
                "look at the file system of the results, then run the same command again (without a run "
                "directory: `overwrite`)"});
}

// While it stands still all ranks are idle, which is no fault of theirs.
void Health::judge_coordinator() {
  const uint64_t turns = pulse().turns;
  if (turns == 0 || turns != std::exchange(turns_, turns)) turned_ = judged_;
  if (judged_ - turned_ > deadlines_.progress)
    tell_alone({ExitCode::fault,
                fmt::format("rank 0 neither reads requests nor plans steps for {:.0f} s",
                            seconds(judged_ - turned_)),
                "all ranks wait for its plans, so the job would hang for ever",
                "look at the file system of the input, and at who reads stderr (a full pipe blocks)"});
}

void Health::start_deadlines_again() {
  const Clock::time_point now = Clock::now();
  for (RankHealth& health : ranks_) health.heard = health.progressed = now;
  disk_changed_ = turned_ = judged_ = now;
}

// Who ends a whole job, or a node, kills several at once, and mostly this rank too, before it can speak.
void Health::accuse_dead(int rank) {
  const std::optional<int> also_dead = neighbours_.wait(milliseconds(50));
  give_up(
      {.rank = rank,
       .where = neighbours_.pulse_of(rank)->where(),
       .error = {ExitCode::fault, "has died", why_all_end,
                 "the launcher may name the signal; if nobody sent SIGKILL, the system did: memory ran out"},
       .noticed_by = world_.rank(),
       .death = true,
       .from_outside = also_dead.has_value()},
      also_dead);
}

void Health::accuse(int rank, const std::string& what) {
  give_up({.rank = rank,
           .where = ranks_[world_.rank() == 0 ? static_cast<size_t>(rank) : 0].last,
           .error = {ExitCode::fault, what, why_all_end,
                     "look at that node; results that were already written are complete"},
           .noticed_by = world_.rank(),
           .from_outside = node_is_gone(rank)});
}

// Known of nodes of several ranks, on rank 0.
bool Health::node_is_gone(int rank) const {
  const std::vector<Place>& places = world_.places();
  const int node = places[static_cast<size_t>(rank)].node;
  if (ranks_.size() < 2 || node == 0 || places[static_cast<size_t>(rank)].local_size < 2) return false;
  for (size_t other = 0; other < ranks_.size(); ++other)
    if (places[other].node == node && judged_ - ranks_[other].heard < deadlines_.silence / 2) return false;
  return true;
}

void Health::tell_agreed(const Error& error, int rank) {
  if (!neighbours_.takes_the_word()) return;
  tell_(
      {.rank = rank, .where = pulse().where(), .error = error, .noticed_by = world_.rank(), .agreed = true});
  neighbours_.has_spoken();
}

// The cause may be the death of another rank, which is noticed meanwhile.
void Health::tell_alone(const Error& error) {
  if (error.code() == ExitCode::fault) std::this_thread::sleep_for(milliseconds(100));
  give_up({.rank = world_.rank(), .where = pulse().where(), .error = error, .noticed_by = world_.rank()});
}

// A rank that has not the word leaves the one that has it the time to speak.
void Health::give_up(const FaultReport& fault, std::optional<int> also_dead) {
  const int code = static_cast<int>(fault.error.code());
  const Watchdog last_words(deadlines_.last_words, [&] { world_.end_process(code); });
  bool speaks = neighbours_.takes_the_word() || neighbours_.takes_the_word(fault.rank) ||
                (also_dead && neighbours_.takes_the_word(*also_dead));
  while (!speaks) {
    const std::optional<int> dead = neighbours_.wait(deadlines_.last_words);
    speaks = dead && neighbours_.takes_the_word(*dead);
  }
  tell_(fault);
  neighbours_.has_spoken();
  world_.abort(code);
  world_.end_process(code);  // for compilers that forget [[noreturn]] in virtual calls
}

}  // namespace maniple
