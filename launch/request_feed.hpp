// What the engine pulls requests from: prepared by the input thread, held back while the results have no
// room, told to who takes the results in the order of the input, and the suspects of earlier faults alone, at
// the end.
#pragma once

#include <launch/request_reader.hpp>

namespace maniple {

// What takes the results, told of each request in the order of the input.
class RequestOrder {
 public:
  virtual ~RequestOrder() = default;
  virtual void expect(RequestId request, const RequestLabel& label) = 0;
  virtual void refuse(RequestId request, const std::string& reason) = 0;
  // Returns when it is on record that this request is about to run alone.
  virtual void start_alone(RequestId request) = 0;
  virtual size_t unfinished() const = 0;  // of those that were expected
  virtual bool has_room() const = 0;      // for the results of further requests
};

// Used by one thread. Ids count the requests of the input from 0.
class RequestFeed : public RequestSource {
 public:
  // What is known from earlier jobs.
  struct History {
    const Ledger* ledger = nullptr;
    bool retry_errors = false;
  };

  // What the setting and the history point to, and `order`, must outlive the feed.
  RequestFeed(RequestReader::Lines lines, RequestReader::Setting setting, const History& history,
              RequestOrder& order);

  bool ready() override;
  bool moved() override;
  std::optional<GenerationRequest> next() override;

 private:
  void look_ahead();
  std::optional<GenerationRequest> admit(PreparedRequest prepared);

  History history_;
  RequestOrder& order_;
  bool dry_ = false;  // the input; suspects may be left
  std::optional<GenerationRequest> ahead_;
  std::vector<PreparedRequest> suspects_;  // run alone, after all others
  uint64_t lines_seen_ = 0;                // when moved() was asked last
  RequestReader reader_;
};

}  // namespace maniple
