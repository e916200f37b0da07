// Input: a template, a zero byte, JSON variables. Wrong input must
// give an Error and nothing else, in bounded time and memory.
#include <kernels/support/check.hpp>
#include <runtime/chat/chat_template.hpp>

#include <nlohmann/json.hpp>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  auto variables = end == input.npos ? nlohmann::ordered_json()
                                     : nlohmann::ordered_json::parse(input.substr(end + 1), nullptr, false);
  if (!variables.is_object())
    variables = {{"messages", {{{"role", "user"}, {"content", "Hi, \xE4\xBD\xA0"}}}}};
  try {
    maniple::ChatTemplate::from_text(input.substr(0, end)).render(variables, 0);
  } catch (const maniple::Error& error) {
    if (error.code() != maniple::ExitCode::input) throw;
  }
  return 0;
}
