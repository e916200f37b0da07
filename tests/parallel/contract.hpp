// The contract of World, Communicator and Channel: one list of cases, run over one process, threads and MPI.
#pragma once

#include <kernels/cpu/cpu_device.hpp>
#include <kernels/reference/reference_ops.hpp>
#include <parallel/world.hpp>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace maniple {

struct ContractCase {
  std::string name;
  std::function<void(World&)> run;  // collective over all ranks
};

const std::vector<ContractCase>& contract_cases();

struct ReferenceBackend {
  CpuDevice device{"reference"};
  ReferenceOps ops{device};
};

inline std::ostream& operator<<(std::ostream& out, const ContractCase& contract_case) {
  return out << contract_case.name;
}

}  // namespace maniple
