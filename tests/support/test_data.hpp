// The folder of the test data: tests/data of the source tree, unless the tests were moved (launch/bundle.sh).
#pragma once

#include <cstdlib>
#include <filesystem>

namespace maniple {

inline std::filesystem::path test_data() {
  const char* const moved = std::getenv("MANIPLE_TEST_DATA");
  return moved ? moved : MANIPLE_TEST_DATA;
}

}  // namespace maniple
