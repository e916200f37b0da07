// The commands: each takes its options and returns when its work is done, or throws.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/options.hpp>
#include <parallel/world.hpp>

namespace maniple {

// Collective. The exit code of rank 0; the other ranks return complete. Throws AgreedError (rank 0) and
// SilentExit (the others) when all ranks agreed to end; after anything else the other ranks are still
// waiting.
ExitCode run_generate(World& world, const GenerateOptions& options);
ExitCode run_doctor(World& world, const DoctorOptions& options);

// One process, no weights, no MPI.
ExitCode run_tokenize(const TokenizeOptions& options);
ExitCode run_status(const StatusOptions& options);
ExitCode run_merge(const MergeOptions& options);

}  // namespace maniple
