#include <runtime/tokenizer/normalizer.hpp>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <kernels/support/check.hpp>
#include <runtime/text/utf8.hpp>

namespace maniple {
namespace {

void require_success(UErrorCode status) {
  if (U_FAILURE(status)) fail(ExitCode::internal, "unicode normalisation failed: {}", u_errorName(status));
}

// name: NFC, NFD, NFKC or NFKD.
const icu::Normalizer2& normalizer_of(std::string_view name) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* found =
      icu::Normalizer2::getInstance(nullptr, name.starts_with("NFK") ? "nfkc" : "nfc",
                                    name.ends_with('C') ? UNORM2_COMPOSE : UNORM2_DECOMPOSE, status);
  require_success(status);
  return *found;
}

icu::UnicodeSet assigned_in_unicode_9() {
  UErrorCode status = U_ZERO_ERROR;
  icu::UnicodeSet set(UNICODE_STRING_SIMPLE("[:age=9.0:]"), status);
  require_success(status);
  set.freeze();
  return set;
}

std::string lowercase(std::string_view text) {
  std::string lower;
  for (size_t position = 0; position < text.size();) {
    const char32_t character = next_code_point(text, position);
    append_utf8(lower, static_cast<char32_t>(u_tolower(static_cast<UChar32>(character))));
    if (character == 0x130) append_utf8(lower, 0x307);  // the one character whose lower case is two
  }
  return lower;
}

std::string apply(const UnicodeForm& form, const std::string& text) { return form.apply(text); }
std::string apply(const Lowercase&, const std::string& text) { return lowercase(text); }
std::string apply(const Prepend& prepend, const std::string& text) {
  return text.empty() ? text : prepend.prefix + text;
}
std::string apply(const Replace& replace, const std::string& text) { return replace.apply(text); }

}  // namespace

struct UnicodeForm::Implementation {
  icu::UnicodeSet assigned = assigned_in_unicode_9();
  icu::FilteredNormalizer2 normalizer;
  explicit Implementation(std::string_view name) : normalizer(normalizer_of(name), assigned) {}
};

UnicodeForm::UnicodeForm(std::string_view name) : implementation_(std::make_shared<Implementation>(name)) {}

std::string UnicodeForm::apply(const std::string& text) const {
  if (std::ranges::all_of(text, [](unsigned char byte) { return byte < 0x80; })) return text;
  std::string normal;
  icu::StringByteSink<std::string> sink(&normal);
  UErrorCode status = U_ZERO_ERROR;
  implementation_->normalizer.normalizeUTF8(0, text, sink, nullptr, status);
  require_success(status);
  return normal;
}

std::string Replace::apply(std::string_view text) const {
  std::string result;
  for (const Span& span : pattern.spans(text))
    result += span.is_match ? std::string_view(content) : text.substr(span.begin, span.end - span.begin);
  return result;
}

std::string Normalizer::normalize(std::string text) const {
  for (const auto& step : steps_)
    text = std::visit([&](const auto& known) { return maniple::apply(known, std::move(text)); }, step);
  return text;
}

}  // namespace maniple
