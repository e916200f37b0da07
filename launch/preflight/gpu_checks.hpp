// Checks of GPUs, and of jobs that could use them. checks.cpp lists them.
#pragma once

#include <launch/preflight/checks.hpp>

namespace maniple {

std::optional<Finding> check_gpus(const JobFacts& s);
std::optional<Finding> check_idle_gpus(const JobFacts& s);
std::optional<Finding> check_fp16(const JobFacts& s);
std::optional<Finding> check_gpu_isolation(const JobFacts& s);
std::optional<Finding> check_gpu_peers(const JobFacts& s);
std::optional<Finding> check_gpu_numa(const JobFacts& s);
std::optional<Finding> check_nccl_transport(const JobFacts& s);

}  // namespace maniple
