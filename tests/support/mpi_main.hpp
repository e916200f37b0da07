// The main of test binaries that run under mpirun: mpi_main.cpp beside the tests, and RANKS in their
// CMakeLists.txt. All ranks run the same tests in the same order.
#pragma once

#include <parallel/world.hpp>

namespace maniple {

World& mpi_test_world();

}  // namespace maniple
