#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <kernels/support/check.hpp>
#include <runtime/checkpoint/quantization/module_rules.hpp>

#include <algorithm>
#include <array>

namespace maniple {

struct ModulePattern::Program {
  struct Free {
    void operator()(pcre2_code* program) const { pcre2_code_free(program); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  std::unique_ptr<pcre2_code, Free> code;
};

namespace {

constexpr const char* why_rules_count = "it says which modules are quantised";
constexpr const char* get_config = "get the config.json that the model was published with";

std::string reason_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

ModulePattern ModulePattern::name_class_or_regex(const std::string& entry, const std::string& where) {
  if (entry.starts_with("re:")) {
    ModulePattern pattern = regex(entry.substr(3), where);
    pattern.text_ = entry;
    return pattern;
  }
  return {entry == "Linear" ? Kind::linear : Kind::name, entry};
}

ModulePattern ModulePattern::part_of_name(const std::string& entry) { return {Kind::part, entry}; }

ModulePattern ModulePattern::prefix_or_suffix(const std::string& entry) {
  return {Kind::prefix_or_suffix, entry};
}

ModulePattern ModulePattern::regex(const std::string& text, const std::string& where) {
  int error = 0;
  PCRE2_SIZE position = 0;
  ModulePattern pattern{Kind::regex, text};
  const auto program = std::make_shared<Program>();
  program->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                    PCRE2_ANCHORED | PCRE2_UTF, &error, &position, nullptr));
  if (!program->code)
    throw Error(ExitCode::input,
                fmt::format("{}: the regular expression '{}' has a mistake at position {}: {}", where, text,
                            position, reason_of(error)),
                why_rules_count, get_config);
  pattern.program_ = program;
  return pattern;
}

bool ModulePattern::matches(std::string_view module) const {
  switch (kind_) {
    case Kind::name:
      return module == text_;
    case Kind::linear:
      return is_linear(module);
    case Kind::part:
      return module.find(text_) != module.npos;
    case Kind::prefix_or_suffix:
      return module.ends_with(text_) ||
             (module.starts_with(text_) && module.size() > text_.size() && module[text_.size()] == '.');
    case Kind::regex:
      break;
  }
  const std::unique_ptr<pcre2_match_context, Program::Free> context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), 100'000);
  const std::unique_ptr<pcre2_match_data, Program::Free> data(
      pcre2_match_data_create_from_pattern(program_->code.get(), nullptr));
  const int found = pcre2_match(program_->code.get(), reinterpret_cast<PCRE2_SPTR>(module.data()),
                                module.size(), 0, 0, data.get(), context.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH)
    throw Error(ExitCode::input,
                fmt::format("quantization_config: the regular expression '{}' cannot be matched with {}: {}",
                            text_, module, reason_of(found)),
                why_rules_count, get_config);
  return found >= 0;
}

const ModulePattern* find(const ModulePatterns& patterns, std::string_view module) {
  const auto found = std::ranges::find_if(patterns, [&](const auto& p) { return p.matches(module); });
  return found == patterns.end() ? nullptr : &*found;
}

bool is_linear(std::string_view module) { return !module.ends_with("embed_tokens"); }

}  // namespace maniple
