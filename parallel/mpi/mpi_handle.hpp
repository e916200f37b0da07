// The type of a communicator, for headers above this folder that take one from a program that owns MPI.
#pragma once

#include <mpi.h>  // IWYU pragma: export
