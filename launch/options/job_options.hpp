// The options of every command that runs on all ranks: what was asked for, constant once it is read.
#pragma once

#include <launch/options/same_options.hpp>
#include <launch/process/launcher.hpp>
#include <launch/process/stop_clock.hpp>
#include <parallel/world.hpp>
#include <runtime/engine_options.hpp>

#include <chrono>
#include <filesystem>
#include <optional>

namespace maniple {

struct JobOptions {
  EngineOptions engine;
  bool loads_model = true;  // all of a model that is named
  GpuTransport transport = GpuTransport::automatic;
  bool nccl_windows = false;
  bool allow_cross_node_tp = false;
  std::chrono::milliseconds start_deadline{};  // for the ranks to find each other
  std::chrono::milliseconds deadline{};        // from a fault to the end of all ranks
  std::optional<std::filesystem::path> run_dir;
  bool quiet = false;  // stderr has warnings and errors only
  GivenOptions given;
  std::optional<Error> mistake;  // why the command line could not be read: given is empty then
  Launch launch;
  TimeLimit time_limit;
};

}  // namespace maniple
