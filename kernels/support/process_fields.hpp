// What the system tells of a process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace maniple {

// The fields of /proc/PID/stat after the program's name: state first. Empty if there is no such process.
std::vector<std::string> process_fields(int64_t pid);

}  // namespace maniple
