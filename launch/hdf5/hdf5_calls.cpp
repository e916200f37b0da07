#include <launch/hdf5/hdf5_calls.hpp>

#include <algorithm>

namespace maniple {
namespace {

std::string innermost_reason() {
  std::string text;
  const auto take = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    if (error->desc) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take, &text);
  return text.empty() ? "the HDF5 library gives no reason" : text;
}

size_t stored_size(const std::string& text) { return std::max<size_t>(text.size(), 1); }

template <typename Read>
std::string text_of(const Hdf5Calls& hdf5, hid_t type, Read read) {
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0) hdf5.check(-1);  // not ours
  std::string text(std::max<size_t>(H5Tget_size(type), 1), '\0');
  hdf5.check(read(text.data()));
  return text.substr(0, text.find('\0'));
}

}  // namespace

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

// Without its exit handler, which would write what a full disk has refused once more, and crash.
Hdf5Calls::Hdf5Calls(ExitCode code, std::string what) : code_(code), what_(std::move(what)) {
  [[maybe_unused]] static const herr_t once = H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

void Hdf5Calls::fail_now() const { fail(code_, "{}: {}", what_, innermost_reason()); }

Hdf5Handle Hdf5Calls::own(hid_t id, Hdf5Handle::Close close) const {
  if (id < 0) fail_now();
  return {id, close};
}

void Hdf5Calls::check(herr_t result) const {
  if (result < 0) fail_now();
}

Hdf5Handle Hdf5Calls::unlocked() const {
  Hdf5Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
#if H5_VERSION_GE(1, 10, 7)
  check(H5Pset_file_locking(access.get(), false, true));
#endif
  return access;
}

Hdf5Handle Hdf5Calls::text_type(size_t bytes) const {
  Hdf5Handle type = own(H5Tcopy(H5T_C_S1), H5Tclose);
  check(H5Tset_size(type.get(), bytes));
  check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD));
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8));
  return type;
}

void Hdf5Calls::write_attribute(hid_t object, const char* name, const std::string& text) const {
  const Hdf5Handle type = text_type(stored_size(text)), space = own(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Handle attribute =
      own(H5Acreate2(object, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  check(H5Awrite(attribute.get(), type.get(), text.c_str()));
}

std::string Hdf5Calls::read_attribute(hid_t object, const char* name) const {
  if (H5Aexists(object, name) <= 0) return {};
  const Hdf5Handle attribute = own(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  const Hdf5Handle type = own(H5Aget_type(attribute.get()), H5Tclose);
  return text_of(*this, type.get(), [&](void* to) { return H5Aread(attribute.get(), type.get(), to); });
}

void Hdf5Calls::write_text(hid_t group, const std::string& name, const std::string& text) const {
  const Hdf5Handle type = text_type(stored_size(text)), space = own(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Handle dataset =
      own(H5Dcreate2(group, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
          H5Dclose);
  check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.c_str()));
}

std::string Hdf5Calls::read_text(hid_t group, const std::string& name) const {
  const Hdf5Handle dataset = own(H5Dopen2(group, name.c_str(), H5P_DEFAULT), H5Dclose);
  const Hdf5Handle type = own(H5Dget_type(dataset.get()), H5Tclose);
  return text_of(*this, type.get(), [&](void* to) {
    return H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, to);
  });
}

std::vector<std::string> Hdf5Calls::names_in(hid_t group) const {
  std::vector<std::string> names;
  const auto take = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  check(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, take, &names));
  return names;
}

}  // namespace maniple
