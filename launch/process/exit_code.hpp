// Every exit code of a job is decided here, but for that of an Error, which brings its own (kernels/support/check.hpp).
#pragma once

#include <kernels/support/check.hpp>

#include <cstdint>
#include <functional>

namespace maniple {

// Of a run with this many failed requests; the share that may fail, in percent.
ExitCode exit_code_of(double fail_on_percent, uint64_t failed, uint64_t requests);

// Of an interrupted run: the same command goes on with it, or it is lost.
ExitCode interrupted_code(bool goes_on);

// What the process shows of it: a planned stop may count as success (--exit-zero-on-stop).
ExitCode shown_code(ExitCode code, bool zero_on_stop);

// Of a bench that was stopped; of one with a result.
ExitCode stopped_bench_code();
ExitCode bench_code(bool invalid, bool require_valid);

// Of doctor, where generate would refuse to start.
inline constexpr ExitCode refused_launch_code = ExitCode::preflight;

// Of this rank, whose work returned it on rank 0. A failure that all ranks know of ends the others with 0; other exceptions pass.
int exit_code_of_rank(const std::function<ExitCode()>& work);

}  // namespace maniple
