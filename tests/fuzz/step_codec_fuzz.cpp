// Any bytes, also after a right header and before a right hash:
// refused with an Error, or exactly the output of encode.
#include <kernels/support/check.hpp>
#include <runtime/control/step_codec.hpp>
#include <runtime/scheduling/sequence_table.hpp>

#include <cstdlib>

namespace {

using namespace maniple;

template <typename Decode>
void check(std::span<const std::byte> message, Decode decode) {
  try {
    const auto again = encode(decode(message));
    if (!std::equal(again.begin(), again.end(), message.begin(), message.end())) std::abort();
  } catch (const Error& error) {
    if (error.code() != ExitCode::fault) std::abort();
  }
}

// A decoded plan also goes to a rank's table, which must refuse it or apply it without harm.
StepPlan decode_and_follow(std::span<const std::byte> message) {
  StepPlan plan = decode_plan(message);
  StepPlan first = plan;
  first.step = 1;
  try {
    SequenceTable(8, 64, 16).apply(first);
  } catch (const Error& error) {
    if (error.code() != ExitCode::fault) std::abort();
  }
  return plan;
}

// An empty message of the same type with its fields replaced by the input.
template <typename Message>
std::vector<std::byte> around(std::span<const std::byte> body) {
  constexpr size_t header_bytes = 6, hash_bytes = 8;
  std::vector<std::byte> message = encode(Message{});
  message.resize(header_bytes);
  message.insert(message.end(), body.begin(), body.end());
  message.resize(message.size() + hash_bytes);
  write_checksum(message);
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  check(input, decode_and_follow);
  check(input, decode_result);
  check(around<StepPlan>(input), decode_and_follow);
  check(around<StepResult>(input), decode_result);
  return 0;
}
