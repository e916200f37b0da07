#include <launch/signals.hpp>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace maniple {

namespace {

std::atomic<int> noted_signal = 0;  // all that a signal handler can reach
static_assert(std::atomic<int>::is_always_lock_free);

void note_signal(int number) {
  if (noted_signal.exchange(number) != 0) ::_exit(128 + number);
}

void handle_both(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptScope::InterruptScope(Reaction reaction) {
  handle_both(reaction == Reaction::note ? note_signal : SIG_IGN);
}
InterruptScope::~InterruptScope() { handle_both(SIG_DFL); }
const std::atomic<int>& InterruptScope::flag() { return noted_signal; }

// All three are opened for reading: descriptors are given out from 0 on, and writing to such a stdout fails.
void protect_standard_streams() {
  int descriptor = 0;
  do descriptor = ::open("/dev/null", O_RDONLY);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  ::close(descriptor);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace maniple
