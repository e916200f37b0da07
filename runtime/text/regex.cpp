#include <kernels/support/check.hpp>
#include <kernels/support/unique_handle.hpp>
#include <runtime/text/regex.hpp>
#include <runtime/text/utf8.hpp>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace maniple {
namespace {

std::string message_of(int code) {
  unsigned char buffer[256];
  const int length = pcre2_get_error_message(code, buffer, sizeof buffer);
  return {reinterpret_cast<const char*>(buffer), static_cast<size_t>(std::max(length, 0))};
}

using Code = UniqueHandle<PlainHandle<pcre2_code*, pcre2_code_free>>;
using CompileContext = UniqueHandle<PlainHandle<pcre2_compile_context*, pcre2_compile_context_free>>;
using MatchContext = UniqueHandle<PlainHandle<pcre2_match_context*, pcre2_match_context_free>>;
using MatchData = UniqueHandle<PlainHandle<pcre2_match_data*, pcre2_match_data_free>>;

constexpr uint32_t heap_limit_kib = 256 * 1024, few_steps = 100'000;

uint32_t options_of(Regex::Syntax syntax) {
  if (syntax == Regex::Syntax::literal) return PCRE2_UTF | PCRE2_LITERAL;
  return PCRE2_UTF | (syntax == Regex::Syntax::at_start ? PCRE2_ANCHORED : PCRE2_UCP | PCRE2_MULTILINE);
}

}  // namespace

struct Regex::Program {
  Source source;
  Code code;
  MatchContext limits{pcre2_match_context_create(nullptr)};

  Program(Source from, std::string_view pattern, Syntax syntax) : source(std::move(from)) {
    const CompileContext context(pcre2_compile_context_create(nullptr));
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    int error = 0;
    size_t offset = 0;
    code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options_of(syntax),
                             &error, &offset, context.get()));
    if (!code)
      refuse(
          pattern == source.text ? fmt::format("has a mistake at position {}", offset) : "is not understood",
          error);
    // Without a JIT compiler PCRE2 interprets the pattern.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    pcre2_set_heap_limit(limits.get(), heap_limit_kib);
    if (syntax == Syntax::at_start) pcre2_set_match_limit(limits.get(), few_steps);
  }

  [[noreturn]] void refuse(std::string_view what, int code_of_error) const {
    throw Error(ExitCode::input,
                fmt::format("{}: the regular expression '{}' {}: {}", source.where, source.text, what,
                            message_of(code_of_error)),
                source.why, source.remedy);
  }

  std::optional<Span> find(std::string_view text, size_t start, const MatchData& data,
                           uint32_t options) const {
    const auto match = [&](uint32_t more) {
      return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                         options | more, data.get(), limits.get());
    };
    int result = match(0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);  // the interpreter uses the heap
    if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (result < 0) refuse("gave up", result);
    const size_t* bounds = pcre2_get_ovector_pointer(data.get());
    return Span{bounds[0], bounds[1], true};
  }
};

Regex::Regex(Source source, std::string_view pattern, Syntax syntax)
    : program_(std::make_shared<Program>(std::move(source), pattern, syntax)) {}

bool Regex::matches(std::string_view text) const {
  return program_->find(text, 0, MatchData(pcre2_match_data_create(1, nullptr)), 0).has_value();
}

// An empty match right after the previous match does not count (as in the onig crate's find_iter).
std::vector<Span> Regex::spans(std::string_view text) const {
  const MatchData data(pcre2_match_data_create(1, nullptr));
  std::vector<Span> spans;
  size_t covered = 0, start = 0;
  std::optional<size_t> last_match_end;
  while (!text.empty() && start <= text.size()) {
    const auto match = program_->find(text, start, data, PCRE2_NO_UTF_CHECK);
    if (!match) break;
    if (match->begin == match->end && last_match_end == match->end) {
      start += start < text.size() ? character_at(text, start).size() : 1;
      continue;
    }
    if (covered < match->begin) spans.push_back({covered, match->begin, false});
    spans.push_back(*match);
    covered = start = match->end;
    last_match_end = match->end;
  }
  if (covered < text.size()) spans.push_back({covered, text.size(), false});
  return spans;
}

}  // namespace maniple
