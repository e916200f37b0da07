// An open file of the operating system, closed once.
#pragma once

#include <kernels/support/unique_handle.hpp>

#include <unistd.h>

namespace maniple {

struct FileDescriptorTraits {
  using Handle = int;
  static Handle none() { return -1; }
  static void release(Handle handle) noexcept { ::close(handle); }
};

using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

}  // namespace maniple
