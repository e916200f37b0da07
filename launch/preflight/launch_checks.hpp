// Checks of how and where the job was started. checks.cpp lists them.
#pragma once

#include <launch/preflight/checks.hpp>

namespace maniple {

std::optional<Finding> check_heterogeneous_job(const JobFacts& s);
std::optional<Finding> check_idle_tasks(const JobFacts& s);
std::optional<Finding> check_threads(const JobFacts& s);
std::optional<Finding> check_processors(const JobFacts& s);

}  // namespace maniple
