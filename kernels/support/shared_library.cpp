#include <kernels/support/shared_library.hpp>

#include <dlfcn.h>

namespace maniple {

SharedLibrary::SharedLibrary(const std::string& path, std::string why, std::string remedy)
    : why_(std::move(why)), remedy_(std::move(remedy)) {
  const std::string name = path.substr(path.rfind('/') + 1);
  for (const std::string& place : {path, name})
    if (!handle_) handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) refuse(fmt::format("{} cannot be opened ({})", name, dlerror()));
}

SharedLibrary::Function SharedLibrary::function(const char* name) const {
  if (void* const address = dlsym(handle_, name)) return {address};
  refuse(dlerror());
}

void SharedLibrary::refuse(const std::string& what) const {
  throw Error(ExitCode::preflight, what, why_, remedy_);
}

}  // namespace maniple
