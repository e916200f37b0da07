// Owns a handle of a C library: move-only, released once by Release.
#pragma once

#include <utility>

namespace maniple {

// Traits for most libraries: `destroy` releases a handle, `nothing` stands for none.
template <typename T, auto destroy, T nothing = T{}>
struct PlainHandle {
  using Handle = T;
  static Handle none() { return nothing; }
  static void release(Handle handle) noexcept { destroy(handle); }
};

// Traits: as PlainHandle.
template <typename Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, Traits::none())) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(std::exchange(other.handle_, Traits::none()));
    return *this;
  }
  ~UniqueHandle() { reset(); }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Traits::none(); }
  void reset(Handle handle = Traits::none()) noexcept {
    if (handle_ != Traits::none()) Traits::release(handle_);
    handle_ = handle;
  }

 private:
  Handle handle_ = Traits::none();
};

}  // namespace maniple
