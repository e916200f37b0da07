// The C interface of HDF5 with owned identifiers, and its failures as our errors. All calls are made on one thread: not
// every build of the library is thread-safe.
#pragma once

#include <kernels/support/check.hpp>

#include <hdf5.h>

#include <string>
#include <utility>
#include <vector>

namespace maniple {

std::string hdf5_version();  // of the library, "1.10.8"

class Hdf5Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t get() const { return id_; }

 private:
  hid_t id_;
  Close close_;
};

// What the calls on one file have in common. Every failure is an Error with `code` that begins with `what` ("cannot read
// a.h5") and ends with the library's own reason; the library itself prints nothing.
class Hdf5Calls {
 public:
  Hdf5Calls(ExitCode code, std::string what);

  Hdf5Handle own(hid_t id, Hdf5Handle::Close close) const;  // fails unless id is one
  void check(herr_t result) const;                          // fails if it is negative

  // Access to a file without locks: network file systems may have none, and we never open for writing what others read.
  Hdf5Handle unlocked() const;
  Hdf5Handle text_type(size_t bytes) const;  // UTF-8, padded with zero bytes
  void write_attribute(hid_t object, const char* name, const std::string& text) const;
  std::string read_attribute(hid_t object, const char* name) const;  // empty if there is none
  void write_text(hid_t group, const std::string& name, const std::string& text) const;  // a dataset
  std::string read_text(hid_t group, const std::string& name) const;
  std::vector<std::string> names_in(hid_t group) const;  // sorted

 private:
  [[noreturn]] void fail_now() const;

  ExitCode code_;
  std::string what_;
};

}  // namespace maniple
