// The lengths of a bench's requests, as --lengths says them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace maniple {

struct LengthRange {
  uint32_t low = 128, high = 128;  // tokens, both of them possible
};

struct Lengths {
  enum class Kind : uint8_t { uniform, sharegpt, file };
  Kind kind = Kind::uniform;
  LengthRange prompt, output;  // uniform
  std::filesystem::path file;  // lines of prompt,output
  std::string text;            // as it was given
};

// Fails (usage) on anything but "fixed:128/128", "uniform:64-512/16-256", "sharegpt" and a path that ends with .csv.
Lengths parse_lengths(const std::string& name, const std::string& text);

}  // namespace maniple
