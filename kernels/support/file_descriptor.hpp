// An open file of the operating system, closed once.
#pragma once

#include <kernels/support/unique_handle.hpp>

#include <unistd.h>

namespace maniple {

using FileDescriptor = UniqueHandle<PlainHandle<int, ::close, -1>>;

}  // namespace maniple
