// A record as an HDF5 file: what h5dump, h5py and pandas read. One row of a table is one compound element; the attribute
// `units` of a table has an entry for each field.
#pragma once

#include <launch/record/record_log.hpp>

#include <filesystem>

namespace maniple {

// Replaces the file, whole even after a crash. Throws Error (fault) where that fails.
void write_record_file(const Record& record, const std::filesystem::path& path);

// Reads an HDF5 record or a log, by its first bytes; a directory: its record, or the log of a job that has not ended.
// Throws Error (input) on what is neither, and on an HDF5 file that makes the library crash. Not for a process that has called
// MPI_Init or runs other threads.
Record read_record(const std::filesystem::path& path);

}  // namespace maniple
