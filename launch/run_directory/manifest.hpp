// The identity of a run: equal manifests are the same run. A run directory holds the results of one run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maniple {

class Manifest {
 public:
  // Nothing if the directory holds none. Fails (input) if it cannot be understood.
  static std::optional<Manifest> read(const std::filesystem::path& directory);
  void write(const std::filesystem::path& directory) const;

  // Fields are compared and shown in the order of these calls.
  void set(std::string name, std::string value);
  const std::string* find(std::string_view name) const;
  uint64_t number(std::string_view name) const;  // fails (input) if there is none

  // The fields that differ, except those in `except`. text: one line each; "there" is the value of this
  // manifest, "here" the wanted one; empty: the same run. remedies: one for each field, may be empty.
  struct Differences {
    std::string text;
    std::vector<std::string> remedies;
  };
  Differences differences(const Manifest& wanted, std::initializer_list<std::string_view> except = {}) const;
  // Fails (input) if fields differ.
  void check_same(const Manifest& wanted, const std::filesystem::path& directory,
                  std::initializer_list<std::string_view> except = {}) const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace maniple
