// What CI takes of many combinations: a cover, another one each day. MANIPLE_WHOLE=yes takes all of them, MANIPLE_SEED=N the cover of day N.
#pragma once

#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace maniple::testing {

inline bool whole() {
  const char* const wish = std::getenv("MANIPLE_WHOLE");
  return wish && wish == std::string_view("yes");
}

// The day of the year; the first call prints how to run the same again.
inline uint64_t cover_seed() {
  static const uint64_t seed = [] {
    const char* const wish = std::getenv("MANIPLE_SEED");
    const std::time_t now = std::time(nullptr);
    std::tm day{};
    const uint64_t number =
        wish ? std::strtoull(wish, nullptr, 10) : static_cast<uint64_t>(gmtime_r(&now, &day)->tm_yday + 1);
    std::printf("cover of MANIPLE_SEED=%llu; all: MANIPLE_WHOLE=yes\n",
                static_cast<unsigned long long>(number));
    return number;
  }();
  return seed;
}

// Numbers that the day and the running test decide, so that subjects of a suite take different combinations.
class CoverDraws {
 public:
  CoverDraws() : state_(hashed(cover_seed())) {
    const ::testing::TestInfo* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    static std::string last;
    static uint64_t calls = 0;
    const std::string name = test ? std::string(test->test_suite_name()) + "." + test->name() : "";
    calls = name == last ? calls + 1 : 0;
    last = name;
    for (const char c : name) state_ = hashed(state_ + static_cast<uint8_t>(c));
    state_ = hashed(state_ + calls);
  }
  size_t below(size_t limit) { return static_cast<size_t>(hashed(++state_) % limit); }
  template <typename T>
  void shuffle(std::vector<T>& list) {
    for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[below(i)]);
  }

 private:
  uint64_t state_;
};

// `count` of a list, in its order; at least one, and all of a shorter list.
template <typename T>
std::vector<T> sampled(const std::vector<T>& all, size_t count) {
  if (whole() || all.empty()) return all;
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  CoverDraws().shuffle(order);
  order.resize(std::clamp<size_t>(count, 1, all.size()));
  std::ranges::sort(order);
  std::vector<T> some;
  for (const size_t i : order) some.push_back(all[i]);
  return some;
}

using CoverRows = std::vector<std::vector<size_t>>;  // an index of each factor

inline CoverRows whole_product(const std::vector<size_t>& sizes) {
  CoverRows rows{{}};
  for (const size_t size : sizes) {
    CoverRows longer;
    for (const std::vector<size_t>& row : rows)
      for (size_t i = 0; i < size; ++i) (longer.emplace_back(row)).push_back(i);
    rows = std::move(longer);
  }
  return rows;
}

// As few rows as the longest factor has values.
inline CoverRows rows_with_each_value(const std::vector<size_t>& sizes) {
  CoverDraws draws;
  CoverRows rows(std::ranges::max(sizes));
  for (const size_t size : sizes) {
    std::vector<size_t> values;
    while (values.size() < rows.size()) {
      std::vector<size_t> again(size);
      std::iota(again.begin(), again.end(), size_t{0});
      draws.shuffle(again);
      values.insert(values.end(), again.begin(), again.end());
    }
    for (size_t i = 0; i < rows.size(); ++i) rows[i].push_back(values[i]);
  }
  return rows;
}

// Greedily: of drawn rows that which brings most new pairs of values.
inline CoverRows rows_with_each_pair(const std::vector<size_t>& sizes) {
  const size_t factors = sizes.size();
  std::vector<std::vector<bool>> met(factors * factors);
  size_t left = 0;
  for (size_t f = 0; f < factors; ++f)
    for (size_t g = f + 1; g < factors; ++g) {
      met[f * factors + g].assign(sizes[f] * sizes[g], false);
      left += sizes[f] * sizes[g];
    }
  const auto for_pairs = [&](const std::vector<size_t>& row, auto&& see) {
    for (size_t f = 0; f < factors; ++f)
      for (size_t g = f + 1; g < factors; ++g) see(met[f * factors + g], row[f] * sizes[g] + row[g]);
  };
  CoverDraws draws;
  CoverRows rows;
  while (left > 0) {
    std::vector<size_t> best;
    size_t most = 0;
    for (int tries = 0; tries < 60 || most == 0; ++tries) {
      std::vector<size_t> row;
      for (const size_t size : sizes) row.push_back(draws.below(size));
      size_t news = 0;
      for_pairs(row, [&](const std::vector<bool>& seen, size_t pair) { news += !seen[pair]; });
      if (news > most) most = news, best = std::move(row);
    }
    for_pairs(best, [](std::vector<bool>& seen, size_t pair) { seen[pair] = true; });
    left -= most;
    rows.push_back(std::move(best));
  }
  return rows;
}

template <typename... T>
std::vector<std::tuple<T...>> of_rows(const CoverRows& rows, const std::vector<T>&... factors) {
  std::vector<std::tuple<T...>> list;
  for (const std::vector<size_t>& row : rows) [&]<size_t... factor>(std::index_sequence<factor...>) {
      list.push_back(std::tuple<T...>{factors[row[factor]]...});
    }
  (std::index_sequence_for<T...>());
  return list;
}

// Combinations of factors in which every value of each is at least once.
template <typename... T>
std::vector<std::tuple<T...>> each_value(const std::vector<T>&... factors) {
  const std::vector<size_t> sizes{factors.size()...};
  if (whole() || std::ranges::count(sizes, size_t{0}) > 0) return of_rows(whole_product(sizes), factors...);
  return of_rows(rows_with_each_value(sizes), factors...);
}

// Combinations in which every two values of two factors meet.
template <typename... T>
std::vector<std::tuple<T...>> each_pair(const std::vector<T>&... factors) {
  const std::vector<size_t> sizes{factors.size()...};
  if (whole() || std::ranges::count(sizes, size_t{0}) > 0) return of_rows(whole_product(sizes), factors...);
  return of_rows(rows_with_each_pair(sizes), factors...);
}

}  // namespace maniple::testing
