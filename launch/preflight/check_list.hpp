// Checks of single things, which checks.cpp lists, by the files that define them.
#pragma once

#include <launch/preflight/checks.hpp>

namespace maniple {

// gpu_checks.cpp: GPUs, and jobs that could use them.
std::optional<Finding> check_gpus(const JobFacts& s);
std::optional<Finding> check_idle_gpus(const JobFacts& s);
std::optional<Finding> check_fp16(const JobFacts& s);
std::optional<Finding> check_gpu_isolation(const JobFacts& s);
std::optional<Finding> check_gpu_peers(const JobFacts& s);
std::optional<Finding> check_gpu_numa(const JobFacts& s);
std::optional<Finding> check_nccl_transport(const JobFacts& s);

// launch_checks.cpp: how and where the job was started.
std::optional<Finding> check_heterogeneous_job(const JobFacts& s);
std::optional<Finding> check_idle_tasks(const JobFacts& s);
std::optional<Finding> check_threads(const JobFacts& s);
std::optional<Finding> check_processors(const JobFacts& s);
std::optional<Finding> check_reads(const JobFacts& s);

// memory_checks.cpp: room in the KV cache for a request, on a node for the weights of its ranks, in /dev/shm for their sums.
std::optional<Finding> check_cache(const JobFacts& s);
std::optional<Finding> check_memory(const JobFacts& s);
std::optional<Finding> check_shared_memory(const JobFacts& s);
// Whether ranks may add in shared memory, and whether they can.
bool adds_in_shared_memory(const JobFacts& s);

}  // namespace maniple
