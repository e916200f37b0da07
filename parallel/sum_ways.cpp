// Which way of summing is the fastest for which size, by measurement.
#include <kernels/support/number_text.hpp>
#include <kernels/support/quantile.hpp>
#include <parallel/collectives.hpp>
#include <parallel/shared_communicator.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace maniple {

namespace {

constexpr int most_rounds = 7;
constexpr double most_seconds = 50e-3;
constexpr double gain = 0.9;  // of the time of messages, at most

constexpr std::array all_ways = {SumWay::messages, SumWay::one_shot, SumWay::two_shot};
constexpr std::array<std::string_view, all_ways.size()> names = {"messages", "one-shot", "two-shot"};

template <typename T>
T of_rank_0(Transport& transport, T value) {
  broadcast(transport, std::as_writable_bytes(std::span(&value, 1)), 0);
  return value;
}

}  // namespace

SumWay SumWays::of(size_t bytes) const {
  size_t index = 0;
  while (index + 1 < of_size.size() && size(index) < bytes) ++index;
  return of_size[index];
}

std::string SumWays::text() const {
  std::string text;
  for (size_t index = 0; index < of_size.size(); ++index) {
    const bool last = index + 1 == of_size.size();
    if (!last && of_size[index] == of_size[index + 1]) continue;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", names[static_cast<size_t>(of_size[index])],
                        last ? "" : " up to " + bytes_text(size(index)));
  }
  return text == names[0] ? text : fmt::format("shared memory ({})", text);
}

void SharedCommunicator::choose_ways(bool may_use_messages) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const Clock::time_point start = Clock::now();
  Tensor memory(ops().device(), DType::fp32,
                {static_cast<int64_t>(SumWays::size(SumWays::count - 1) / sizeof(float))});
  // As in a layer, where a product has just written x: what lies in the caches decides between the ways.
  const auto seconds = [&](SumWay way, size_t bytes) {
    const TensorView x = memory.view().rows(0, static_cast<int64_t>(bytes / sizeof(float)));
    std::fill_n(x.as<float>(), x.shape[0], 1.0f);
    ways_.of_size.fill(way);
    const Clock::time_point begin = Clock::now();
    all_reduce(x);
    return seconds_since(begin);
  };
  SumWays chosen;
  double of_round = 0;  // seconds, at the last size
  for (size_t index = 0; index < chosen.of_size.size(); ++index) {
    const double rounds_left = (most_seconds - seconds_since(start)) / (4 * of_round);
    const auto rounds = of_rank_0(
        transport(),
        index == 0 ? most_rounds : static_cast<int>(std::clamp<double>(rounds_left, 0, most_rounds)));
    if (rounds == 0) {  // then the larger ones go as the largest that there was time for
      std::fill(chosen.of_size.begin() + static_cast<std::ptrdiff_t>(index), chosen.of_size.end(),
                chosen.of_size[index - 1]);
      break;
    }
    std::array<std::vector<double>, all_ways.size()> taken;
    for (int round = 0; round < rounds; ++round)
      for (const SumWay way : all_ways)
        taken[static_cast<size_t>(way)].push_back(seconds(way, SumWays::size(index)));
    const auto median = [&](size_t way) { return quantile(taken[way], 0.5); };
    const double messages = median(0), one_shot = median(1), two_shot = median(2);
    of_round = messages + one_shot + two_shot;
    if (may_use_messages && std::min(one_shot, two_shot) > gain * messages)
      chosen.of_size[index] = SumWay::messages;
    else
      chosen.of_size[index] = one_shot <= two_shot ? SumWay::one_shot : SumWay::two_shot;
  }
  ways_ = of_rank_0(transport(), chosen);
}

}  // namespace maniple
