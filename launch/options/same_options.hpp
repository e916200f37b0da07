// All ranks must have the same options, because they work on one model in step.
#pragma once

#include <kernels/support/check.hpp>
#include <parallel/world.hpp>

#include <map>
#include <optional>
#include <string>

namespace maniple {

// As text, by name without dashes: "dtype" -> "bf16", "eager" -> "" (a switch), "command" -> "generate".
using GivenOptions = std::map<std::string, std::string>;

// Collective, before anything that depends on options is sent. mistake: why
// this rank's command line could not be read. Ends all ranks by CollectiveError
// (that mistake; or input: rank, host and option that differ) or by SilentExit.
void refuse_different_options(World& world, GivenOptions mine, const std::optional<Error>& mistake);

}  // namespace maniple
