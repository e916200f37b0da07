#include <launch/process/signals.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <initializer_list>
#include <thread>

namespace maniple {
namespace {

std::atomic<int> noted_signal = 0;    // all that a signal handler uses
std::atomic<int64_t> sigterm_at = 0;  // in ms of the steady clock
std::atomic<const char*> removed_on_sigterm = nullptr;
std::atomic<const StoppedMarker*> stopped_marker = nullptr;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

int64_t now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

void note_time_of(int number) {
  int64_t never = 0;
  if (number != SIGTERM) return;
  sigterm_at.compare_exchange_strong(never, now_ms());
  if (const StoppedMarker* marker = stopped_marker) marker->put_in_place();
  if (const char* path = removed_on_sigterm) ::unlink(path);
}

// A warning does not replace an earlier signal.
void note_stop_warning(int number) {
  int nothing = 0;
  noted_signal.compare_exchange_strong(nothing, number);
}

void note_stop_request(int number) {
  note_time_of(number);
  const int before = noted_signal.exchange(number);
  if (before == SIGINT || before == SIGTERM) ::_exit(128 + number);
}

// The other threads go on during the wait.
void end_after_a_moment(int number) {
  note_time_of(number);
  constexpr std::chrono::milliseconds moment = sigterm_kills_after + std::chrono::milliseconds(200);
  ::poll(nullptr, 0, static_cast<int>(moment.count()));
  if (const StoppedMarker* marker = stopped_marker) marker->end_process_if_in_place();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

// In a separate thread, because a handler would interrupt system calls of MPI.
void watch_for_sigterm() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    for (int number = 0; ::sigwait(&signals, &number) == 0;) note_time_of(number);
  }).detach();
}

void handle(std::initializer_list<int> signals, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int number : signals) ::sigaction(number, &action, nullptr);
}

}  // namespace

void prepare_for_stops(int rank) {
  if (rank == 0) {
    handle({SIGUSR1}, note_stop_warning);
    handle({SIGTERM}, end_after_a_moment);
  } else {
    handle({SIGINT, SIGUSR1}, SIG_IGN);
    watch_for_sigterm();
  }
}

void remove_on_sigterm(const char* path) {
  removed_on_sigterm = path;
  if (path && sigterm_at != 0) ::unlink(path);
}

bool sigterm_is_older_than(std::chrono::milliseconds age) {
  return sigterm_at != 0 && now_ms() - sigterm_at > age.count();
}

InterruptScope::InterruptScope() { handle({SIGINT, SIGTERM}, note_stop_request); }
InterruptScope::~InterruptScope() {
  handle({SIGINT}, SIG_DFL);
  handle({SIGTERM}, end_after_a_moment);
}
const std::atomic<int>& InterruptScope::flag() { return noted_signal; }
void InterruptScope::stop_by_clock() { note_stop_warning(SIGALRM); }

std::string InterruptScope::cause() {
  const int number = noted_signal;
  return number == SIGALRM ? "the clock" : std::string("SIG") + ::sigabbrev_np(number);
}

ExitCode InterruptScope::interrupted_code() {
  return noted_signal == SIGINT ? ExitCode::interrupted : ExitCode::terminated;
}

StoppedMarker::StoppedMarker(const std::filesystem::path& marker, const std::filesystem::path& status,
                             const std::filesystem::path& fault, std::atomic<Phase>& phase, ExitCode code)
    : marker_(marker), status_(status), fault_(fault), phase_(phase), code_(code) {
  stopped_marker = this;
}

StoppedMarker::~StoppedMarker() { stopped_marker = nullptr; }

bool StoppedMarker::is_fault() const { return ::access(fault_.c_str(), F_OK) == 0; }

void StoppedMarker::put_in_place() const {
  if (!is_fault() && ::rename(marker_.c_str(), status_.c_str()) == 0) in_place_ = true;
}

// The marker may have been made after the signal.
void StoppedMarker::end_process_if_in_place() const {
  put_in_place();
  if (!in_place_ || is_fault()) return;
  phase_ = Phase::gone;
  ::_exit(static_cast<int>(code_));
}

// open() takes the lowest free number, so this fills all three. Writing to such a stdout fails.
void protect_standard_streams() {
  int descriptor = 0;
  do descriptor = ::open("/dev/null", O_RDONLY);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  ::close(descriptor);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
}

void end_on_closed_pipe() { ::signal(SIGPIPE, SIG_DFL); }

}  // namespace maniple
