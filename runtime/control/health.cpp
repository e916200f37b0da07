#include <kernels/support/check.hpp>
#include <runtime/control/health.hpp>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace maniple {
namespace {

using Clock = std::chrono::steady_clock;

struct Beat {
  uint64_t step = 0;
  uint32_t layer = 0;
  Phase phase = Phase::start;
};

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::start:
      return "start-up";
    case Phase::load:
      return "loading weights";
    case Phase::idle:
      return "waiting for work";
    case Phase::step:
      return "a step";
    case Phase::end:
      return "the end";
  }
  return "?";
}

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Health::Health(World& world, Pulse& pulse, const Deadlines& deadlines)
    : world_(world), pulse_(pulse), deadlines_(deadlines), channel_(world.make_channel()) {
  ranks_.resize(static_cast<size_t>(world.rank() == 0 ? world.size() : 1));
  start_deadlines_again();
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Health::~Health() = default;

void Health::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  while (!stop.stop_requested()) {
    const Clock::time_point before = Clock::now();
    beat();
    listen();
    judge();
    std::unique_lock lock(mutex);
    wake.wait_for(lock, stop, deadlines_.beat, [] { return false; });
    // This process itself stood still (a suspended job): the others did not get a chance to be heard.
    if (Clock::now() - before > 2 * deadlines_.beat + std::chrono::seconds(3)) start_deadlines_again();
  }
}

void Health::beat() {
  const Beat now{pulse_.step, pulse_.layer, pulse_.phase};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&now, 1));
  channel_.leaf->try_send(0, bytes);
  if (!channel_.center) return;
  for (int rank = 0; rank < world_.size(); ++rank) channel_.center->try_send(rank, bytes);
}

void Health::listen() {
  const auto hear = [this](Mailbox& mailbox) {
    while (const std::optional<Message> message = mailbox.try_receive()) {
      Beat beat;
      if (message->bytes.size() != sizeof(beat)) continue;
      std::memcpy(&beat, message->bytes.data(), sizeof(beat));
      RankHealth& health = ranks_[world_.rank() == 0 ? static_cast<size_t>(message->from) : 0];
      const Clock::time_point now = Clock::now();
      if (beat.phase != health.phase || beat.step != health.step || beat.layer != health.layer)
        health.progressed = now;
      health = {beat.phase, beat.step, beat.layer, now, health.progressed};
    }
  };
  if (!channel_.center) return hear(*channel_.leaf);
  while (channel_.leaf->try_receive()) {  // rank 0 to itself
  }
  hear(*channel_.center);
}

void Health::judge() {
  if (const std::optional<std::string> fault = world_.fault())
    give_up(
        fmt::format("maniple: error: {}\n"
                    "  why: the ranks of a group wait for each other, so the job would hang for ever\n"
                    "  try: NCCL_DEBUG=INFO shows what NCCL did; --transport host goes without it\n",
                    *fault));
  const Clock::time_point now = Clock::now();
  // One voice: all miss a silent rank 0 at once, so rank 1 speaks, and the others only if that did not end
  // the job.
  const Clock::duration patience = world_.rank() > 1 ? 2 * deadlines_.beat : Clock::duration{};
  for (size_t index = 0; index < ranks_.size(); ++index) {
    const RankHealth& health = ranks_[index];
    const int rank = world_.rank() == 0 ? static_cast<int>(index) : 0;
    const Clock::duration silence = now - health.heard, standstill = now - health.progressed;
    const bool starting = health.phase == Phase::start || health.phase == Phase::load;
    if (silence > deadlines_.silence + patience)
      accuse(rank, fmt::format("has not been heard of for {:.0f} s", seconds(silence)));
    if (world_.rank() != 0) continue;
    if ((starting && standstill > deadlines_.start_up) ||
        (health.phase == Phase::step && standstill > deadlines_.progress))
      accuse(rank, fmt::format("has made no progress for {:.0f} s", seconds(standstill)));
  }
}

void Health::start_deadlines_again() {
  for (RankHealth& health : ranks_) health.heard = health.progressed = Clock::now();
}

void Health::accuse(int rank, const std::string& what) {
  const RankHealth& health = ranks_[world_.rank() == 0 ? static_cast<size_t>(rank) : 0];
  give_up(
      fmt::format("maniple: error: rank {} on {} {} (last seen in {}, step {}, layer {})\n"
                  "  why: the ranks of a job wait for each other, so it would hang for ever\n"
                  "  try: look at that node; results that were already written are complete\n",
                  rank, world_.places()[static_cast<size_t>(rank)].host, what, name_of(health.phase),
                  health.step, health.layer));
}

void Health::give_up(const std::string& message) {
  fmt::print(stderr, "{}  (noticed by rank {} on {})\n", message, world_.rank(),
             world_.places()[static_cast<size_t>(world_.rank())].host);
  std::fflush(stderr);
  // Should the launcher's abort be stuck as well.
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    std::_Exit(static_cast<int>(ExitCode::fault));
  }).detach();
  world_.abort(static_cast<int>(ExitCode::fault));
  std::_Exit(static_cast<int>(ExitCode::fault));  // for compilers that forget [[noreturn]] in virtual calls
}

}  // namespace maniple
