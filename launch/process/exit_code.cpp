#include <launch/process/exit_code.hpp>
#include <launch/process/signals.hpp>
#include <runtime/collective_phase.hpp>

#include <csignal>

namespace maniple {

ExitCode exit_code_of(double fail_on_percent, uint64_t failed, uint64_t requests) {
  const bool too_many =
      failed > 0 && static_cast<double>(failed) * 100 > fail_on_percent * static_cast<double>(requests);
  return too_many ? ExitCode::some_requests_failed : ExitCode::complete;
}

ExitCode interrupted_code(bool goes_on) {
  return goes_on ? ExitCode::stopped : InterruptScope::interrupted_code();
}

ExitCode shown_code(ExitCode code, bool zero_on_stop) {
  return zero_on_stop && code == ExitCode::stopped ? ExitCode::complete : code;
}

ExitCode stopped_bench_code() { return interrupted_code(InterruptScope::flag() == SIGALRM); }

ExitCode bench_code(bool invalid, bool require_valid) {
  return invalid && require_valid ? ExitCode::some_requests_failed : ExitCode::complete;
}

int exit_code_of_rank(const std::function<ExitCode()>& work) try {
  return static_cast<int>(work());
} catch (const SilentExit&) {
  return 0;
} catch (const CollectiveError& error) {
  return static_cast<int>(error.code());
}

}  // namespace maniple
