// A failure that ends the program, or a call of the library.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace maniple {

// The documented exit codes of the program.
enum class ExitCode : int {
  complete = 0,
  some_requests_failed = 1,
  usage = 64,      // bad command line
  input = 65,      // bad input, model or foreign run directory
  preflight = 69,  // the launch or the machine does not fit the job
  internal = 70,   // a bug of ours
  stopped = 75,    // on purpose, resumable
  fault = 76,      // a rank or the network failed
  interrupted = 130,
  terminated = 143,
};

// what: lower case, with the numbers. why: the consequence, may be empty. remedy: what to type, may be empty.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what, std::string why = {}, std::string remedy = {})
      : std::runtime_error(what), code_(code), why_(std::move(why)), remedy_(std::move(remedy)) {}

  ExitCode code() const { return code_; }
  const std::string& why() const { return why_; }
  const std::string& remedy() const { return remedy_; }

 private:
  ExitCode code_;
  std::string why_;
  std::string remedy_;
};

}  // namespace maniple
