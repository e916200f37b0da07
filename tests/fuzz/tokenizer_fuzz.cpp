// Input: a tokenizer.json, or else a tiktoken.model, a zero byte, a text. Wrong input must give an Error and nothing else. Encoded text
// must decode to the same text at once and token by token.
#include <cstdlib>
#include <kernels/support/check.hpp>
#include <runtime/checkpoint/token_settings.hpp>
#include <runtime/tokenizer/incremental_detokenizer.hpp>

using namespace maniple;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto end = input.find('\0');
  const auto text = end == std::string_view::npos ? std::string_view("ab c") : input.substr(end + 1);
  try {
    const auto file = input.substr(0, end);
    const auto tokenizer =
        file.starts_with('{') ? Tokenizer::from_json(file) : Tokenizer::from_tiktoken(file, "", {});
    const auto ids = tokenizer.encode(text, true);
    IncrementalDetokenizer detokenizer(tokenizer, false);
    std::string joined;
    for (const auto id : ids) joined += detokenizer.push(id);
    if (joined + detokenizer.finish() != tokenizer.decode(ids, false)) std::abort();
  } catch (const Error& error) {
    if (error.code() != ExitCode::input) std::abort();
  }
  return 0;
}
