// Where the data of the tests is: the source tree's tests/data, unless the tests were moved
// (launch/bundle.sh).
#pragma once

#include <cstdlib>
#include <filesystem>

namespace maniple {

inline std::filesystem::path test_data() {
  const char* const moved = std::getenv("MANIPLE_TEST_DATA");
  return moved ? moved : MANIPLE_TEST_DATA;
}

}  // namespace maniple
