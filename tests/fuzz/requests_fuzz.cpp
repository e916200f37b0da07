// Any bytes as a file of requests: refused with an Error, or every line is a request when it is read again.
#include <kernels/support/check.hpp>
#include <launch/input/json_line.hpp>
#include <launch/input/requests.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace {

using namespace maniple;

// A file in memory, because a LineReader reads files.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* bytes, size_t size) : descriptor_(::memfd_create("requests", 0)) {
    require(::write(descriptor_, bytes, size) == static_cast<ssize_t>(size), "memory takes the bytes");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

bool is_accepted(LineReader& reader, InputSummary& summary) {
  try {
    summary = validate_requests(reader);
    return true;
  } catch (const Error& error) {
    if (error.code() != ExitCode::input) throw;
    return false;
  }
}

void check(const RequestLine& request) {
  require(!request.label.id.empty(), "a request has an id");
  if (request.prompt) check_utf8(*request.prompt, "prompt");
  check_utf8(request.continuation, "continuation");
  require(request.continued_from <= request.tokens.size(), "a continuation is within the tokens");
  if (request.reasoning)
    require(reasoning_name(*request.reasoning) == *request.reasoning, "a name of reasoning is known");
  for (const int32_t token : request.tokens) require(token >= 0, "token ids are not negative");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const MemoryFile file(bytes, size);
  LineReader reader(file.path());
  InputSummary summary;
  if (!is_accepted(reader, summary)) return 0;
  size_t requests = 0;
  for (; const auto line = reader.next(); ++requests) check(parse_request(*line));
  require(requests == summary.requests, "a second reading finds the same requests");
  return 0;
}
