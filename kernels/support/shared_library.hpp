// A library that is opened on demand: the program starts on machines that do not have it.
#pragma once

#include <kernels/support/check.hpp>

#include <string>

namespace maniple {

// Stays open until the process ends: objects that it made may outlive any owner.
class SharedLibrary {
 public:
  // path: "/usr/local/cuda/lib64/libnccl.so.2", where the build found it. The second choice is the file name
  // on the loader's own path. Throws Error (preflight) with the loader's message, `why` and `remedy`.
  SharedLibrary(const std::string& path, std::string why, std::string remedy);

  // Converts to a pointer to any function: `decltype(&cos) cos = library.function("cos");`
  struct Function {
    void* address;
    template <typename Signature>
    operator Signature*() const {
      return reinterpret_cast<Signature*>(address);
    }
  };
  // Throws Error (preflight) where the library has no such function.
  Function function(const char* name) const;

 private:
  [[noreturn]] void refuse(const std::string& what) const;

  const std::string why_, remedy_;
  void* handle_ = nullptr;
};

}  // namespace maniple
