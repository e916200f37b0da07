// A device and the operations on it, and the options that choose them (kernels/factory makes one).
#pragma once

#include <kernels/ops.hpp>
#include <kernels/tensor/device.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// automatic: cuda where this build has it and a GPU is visible, else cpu.
enum class BackendKind { automatic, cpu, reference, cuda };
// Instruction paths of the CPU backend, best first. The path decides the last bits, so all ranks of a job
// take the same one.
enum class CpuPath { automatic, amx, avx512_bf16, avx512, avx2, portable };

std::string_view name_of(CpuPath path);  // "avx512_bf16"
// Paths that this processor can run, best first by a table of processors (not by a timing: the choice must be
// repeatable).
std::vector<CpuPath> available_cpu_paths();

struct BackendChoice {
  BackendKind kind = BackendKind::automatic;
  CpuPath cpu_path = CpuPath::automatic;  // automatic: the first of available_cpu_paths()
};

struct BackendOptions {
  BackendKind kind = BackendKind::automatic;
  CpuPath cpu_path = CpuPath::automatic;
  int threads = 1;             // of this rank, the calling thread included
  std::vector<int> cpus = {};  // logical CPUs the threads are pinned to, one each; empty: not pinned
  int gpu = 0;                 // index among the GPUs that this process sees
};

struct GpuIdentity {
  std::string uuid;                // as Device::uuid()
  std::string bus;                 // "0000:41:00.0", as in /sys/bus/pci/devices
  std::vector<std::string> peers;  // uuids of visible GPUs whose memory it can address
};

struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
};

}  // namespace maniple
