#include <kernels/support/process_fields.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

namespace maniple {

std::vector<std::string> process_fields(int64_t pid) {
  std::ostringstream text;
  text << std::ifstream(fmt::format("/proc/{}/stat", pid)).rdbuf();
  const std::string stat = text.str();
  std::istringstream rest(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  return {std::istream_iterator<std::string>(rest), {}};
}

}  // namespace maniple
