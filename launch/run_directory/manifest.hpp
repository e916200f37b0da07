// What makes two runs the same run. A run directory holds the results of one.
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
  // Nothing where the directory holds none. Fails (input) where it cannot be understood.
  static std::optional<Manifest> read(const std::filesystem::path& directory);
  void write(const std::filesystem::path& directory) const;

  // In the order in which they are compared and shown; the value in words.
  void set(std::string name, std::string value);
  const std::string* find(std::string_view name) const;
  uint64_t number(std::string_view name) const;  // fails (input) where there is none

  // The fields that differ, but for those named in `except`. text: a line each, "there" is what this one
  // holds, "here" the wanted one; empty: both are of one run. remedies: of each field, may be empty.
  struct Differences {
    std::string text;
    std::vector<std::string> remedies;
  };
  Differences differences(const Manifest& wanted, std::initializer_list<std::string_view> except = {}) const;
  // Fails (input) where there are any.
  void check_same(const Manifest& wanted, const std::filesystem::path& directory,
                  std::initializer_list<std::string_view> except = {}) const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace maniple
