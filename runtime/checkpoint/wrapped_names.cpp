#include <runtime/checkpoint/wrapped_names.hpp>

namespace maniple {
namespace {

struct Prefix {
  std::string_view stored, plain;
};
constexpr Prefix prefixes[] = {{"language_model.model.", "model."},
                               {"model.language_model.", "model."},
                               {"language_model.lm_head", "lm_head"}};

}  // namespace

std::string plain_name(std::string_view stored) {
  for (const Prefix& prefix : prefixes)
    if (stored.starts_with(prefix.stored))
      return std::string(prefix.plain).append(stored.substr(prefix.stored.size()));
  return std::string(stored);
}

std::vector<std::string> stored_names(std::string_view plain) {
  std::vector<std::string> names{std::string(plain)};
  for (const Prefix& prefix : prefixes)
    if (plain.starts_with(prefix.plain))
      names.push_back(std::string(prefix.stored).append(plain.substr(prefix.plain.size())));
  return names;
}

}  // namespace maniple
