// The output of another program, read in a way that cannot hang.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace maniple {

// The standard output of a program found on PATH; its stderr is discarded.
// Nothing if it does not start, or if it has not ended after `patience` or when
// `stop` is requested: then it is killed. Safe beside other threads and MPI.
std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds patience, const std::stop_token& stop = {});

}  // namespace maniple
