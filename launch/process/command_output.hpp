// What another program says, asked in a way that cannot hang.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace maniple {

// The standard output of a program found on PATH; its errors go nowhere. Nothing if it does not start, or is
// not done after `patience` or when `stop` is requested: then it is killed. Safe beside other threads and
// MPI.
std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds patience, const std::stop_token& stop = {});

}  // namespace maniple
