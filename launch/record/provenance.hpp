// Where a record comes from: what anybody needs who wants to repeat the run, or to doubt it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

using Texts = std::map<std::string, std::string>;

// Of the program and of this machine: version, git_commit, compiler, mpi, cuda, nccl, hdf5, cpu_model, kernel, command_line,
// environment (a line each). environment: NAME=value.
Texts machine_provenance(const std::vector<std::string>& environment);

// Variables of Slurm, MPI, the network, NCCL and OpenMP: never one whose name hints at a secret.
bool is_recorded(std::string_view variable);

// "2026-11-23T03:28:26Z".
std::string utc_now();

}  // namespace maniple
