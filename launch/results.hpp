// Results in the order of the input, whatever the order in which requests end.
#pragma once

#include <launch/requests.hpp>
#include <launch/text_files.hpp>
#include <runtime/requests.hpp>

#include <map>
#include <string>
#include <unordered_map>

namespace maniple {

// One line of JSON, without its end. Holds only what follows from request, model and seed: its bytes are the
// same on every grid. id: as JSON. Numbers are the shortest that read back as the same float.
std::string result_line(const std::string& id, const Completion& completion, bool with_text);

class ResultWriter : public CompletionSink, public RequestOrder {
 public:
  // json: lines; else the bare text of the completions. with_text: the model has a tokenizer.
  struct Format {
    bool json = true;
    bool with_text = true;
  };
  ResultWriter(OutputFile& file, const Format& format) : file_(file), format_(format) {}

  void expect(RequestId request, const std::string& id) override { ids_.emplace(request, id); }
  void refuse(RequestId request, const std::string& reason) override;
  // Writes what has its turn; throws Error (fault) when it cannot.
  void finished(Completion completion) override;
  // After the last: what finished while an earlier request did not.
  void write_held();

  size_t done() const { return done_; }
  size_t failed() const { return failed_; }
  const std::string& last_error() const { return last_error_; }

 private:
  std::string rendered(const std::string& id, const Completion& completion) const;

  OutputFile& file_;
  Format format_;
  std::unordered_map<RequestId, std::string> ids_;  // of requests that have not ended
  std::map<RequestId, std::string> held_;           // lines that wait for an earlier one
  RequestId turn_ = 0;
  size_t done_ = 0;
  size_t failed_ = 0;
  std::string last_error_;
};

}  // namespace maniple
