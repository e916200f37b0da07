#include <kernels/support/quantile.hpp>
#include <runtime/request_meter.hpp>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

namespace maniple {
namespace {

constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

void set_reason(RequestRow& row, std::string_view reason) { reason.copy(row.reason, sizeof row.reason - 1); }

const char* word_for(FinishReason reason) {
  return reason == FinishReason::not_finite ? "error" : reason == FinishReason::stop ? "stop" : "length";
}

}  // namespace

void RequestMeter::arrived(RequestId request, size_t prompt_tokens, uint32_t answers) {
  if (!observer_) return;
  open_[request].answers.resize(answers);
  RequestRow& row = open_[request].row;
  row.id = request;
  row.prompt = prompt_tokens;
  row.arrival_s = now_;
}

void RequestMeter::admitted(const Admission& admission, uint32_t replica) {
  const auto found = open_.find(admission.request);
  if (found == open_.end()) return;
  RequestRow& row = found->second.row;
  if (++found->second.admissions > found->second.answers.size()) ++row.preemptions;
  if (found->second.admissions > 1) return;
  row.replica = replica;
  row.cached = admission.cached_length;
  row.admitted_s = now_;
}

void RequestMeter::token(RequestId request, uint32_t answer) {
  const auto found = open_.find(request);
  if (found == open_.end()) return;
  auto& [row, answers, gaps, admissions] = found->second;
  auto& [tokens, last] = answers[answer];
  if (row.output++ == 0) row.first_s = now_;
  if (tokens++ > 0) gaps.push_back(static_cast<float>(now_ - last));
  last = row.done_s = now_;
}

void RequestMeter::ended(RequestId request, FinishReason reason) {
  const auto found = open_.find(request);
  if (found == open_.end()) return;
  auto [row, answers, gaps, admissions] = std::move(found->second);
  open_.erase(found);
  std::ranges::sort(gaps);
  set_reason(row, word_for(reason));
  const bool spoke = row.output > 0;
  if (!spoke) row.done_s = now_;
  if (!spoke) row.first_s = not_known;
  row.queue_s = row.admitted_s - row.arrival_s;
  row.ttft_s = row.first_s - row.admitted_s;
  const uint64_t longest = std::ranges::max_element(answers, {}, &Growing::tokens)->tokens;
  row.tpot_s = longest > 1 ? (row.done_s - row.first_s) / static_cast<double>(longest - 1) : not_known;
  row.itl_p50_s = sorted_quantile(gaps, 0.5);
  row.itl_p90_s = sorted_quantile(gaps, 0.9);
  row.itl_p99_s = sorted_quantile(gaps, 0.99);
  row.itl_max_s = sorted_quantile(gaps, 1);
  row.e2e_s = row.done_s - row.arrival_s;
  observer_->request(row);
}

void RequestMeter::refused(RequestId request, size_t prompt_tokens) {
  if (!observer_) return;
  RequestRow row{.id = request, .prompt = prompt_tokens, .arrival_s = now_};
  set_reason(row, "error");
  row.done_s = row.arrival_s;
  row.admitted_s = row.first_s = row.queue_s = row.ttft_s = row.tpot_s = row.e2e_s = not_known;
  row.itl_p50_s = row.itl_p90_s = row.itl_p99_s = row.itl_max_s = not_known;
  observer_->request(row);
}

}  // namespace maniple
