// Calls of the HDF5 library on a file that may be damaged: the library does not check all that it reads, and may crash.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace maniple {

// Runs `read` in a child process and returns the texts that it returns there; a zero byte parts one. An Error of it is
// thrown here; where the child ends in any other way, as by a signal, an Error (input) that names the file. Fails
// (preflight) where no process can be started. Not for a process that has called MPI_Init or runs other threads.
std::vector<std::string> in_hdf5_process(const std::filesystem::path& file,
                                         const std::function<std::vector<std::string>()>& read);

}  // namespace maniple
