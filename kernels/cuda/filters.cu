#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/sampling_entries.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int row_threads = 1024;  // of a block that reads whole parts of rows: more loads are on their way

constexpr int digit_bits = 11, num_bins = 1 << digit_bits, rest_bits = 32 - 2 * digit_bits;
// Of the next digit of a key, of which so many bits are unknown.
__device__ int shift_of(int unknown) { return unknown > digit_bits ? unknown - digit_bits : 0; }

struct Reach {
  uint32_t key;                      // or its first digits
  unsigned long long above, inside;  // sums of larger keys, and of this one
  double wanted;                     // of both together
};

struct FilterScratch {
  uint32_t low[num_bins], high[num_bins];  // the halves of sums
  Reach reach;
  unsigned long long sums[row_threads / 32];
  int counts[row_threads / 32], before;
  int32_t id;

  // Shared memory adds 32 bits at once, 64 only by trial.
  __device__ void add(uint32_t bin, unsigned long long weight) {
    const auto part = static_cast<uint32_t>(weight);
    const uint32_t carry = atomic_add(&low[bin], part) + part < part;
    if (const uint32_t rest = static_cast<uint32_t>(weight >> 32) + carry) atomic_add(&high[bin], rest);
  }
  __device__ unsigned long long in_bin(int bin) const {
    return static_cast<unsigned long long>(high[bin]) << 32 | low[bin];
  }
  __device__ void put(int bin, unsigned long long sum) {
    low[bin] = static_cast<uint32_t>(sum);
    high[bin] = static_cast<uint32_t>(sum >> 32);
  }
};
__device__ FilterScratch& filter_scratch() { return *reinterpret_cast<FilterScratch*>(shared_memory()); }

// Adds the weights of the entries that share the digits found so far by their next digit. Integer sums do not depend on the order of
// threads. Entries below `lowest` count in the first digit alone, as smaller than all keys.
template <typename Entries, typename Weight>
__device__ void add_weights(const Entries& entries, int unknown, Weight weight, uint32_t lowest) {
  FilterScratch& scratch = filter_scratch();
  for (int bin = thread_index(); bin < num_bins; bin += block_threads()) scratch.put(bin, 0);
  synchronize_block();
  const uint32_t digits = scratch.reach.key;
  unsigned long long below = 0;
  entries.for_each([&](int32_t, float logit, int number) {
    const uint32_t key = key_of(logit);
    if (static_cast<uint64_t>(key ^ digits) >> unknown) return;
    const unsigned long long added = number * weight(key);
    if (key < lowest)
      below += added;
    else if (added > 0)
      scratch.add(key >> shift_of(unknown) & (num_bins - 1), added);
  });
  below = warp_reduce(below, std::plus<unsigned long long>{});
  if (unknown == 32 && lane_index() == 0) scratch.add(0, below);
  synchronize_block();
}

// Finds the next digit of the key where these sums reach `wanted`, which the first digit makes of the sum of all.
template <typename Wanted>
__device__ void find_digit(int unknown, Wanted wanted_of) {
  FilterScratch& scratch = filter_scratch();
  Reach reach = scratch.reach;
  int bins = num_bins / block_threads(), bin = num_bins - 1 - thread_index() * bins;
  unsigned long long mine = 0, all;
  for (int i = 0; i < bins; ++i) mine += scratch.in_bin(bin - i);
  reach.above += block_sum_before(mine, scratch.sums, all);
  if (unknown == 32) reach.wanted = wanted_of(static_cast<double>(all));
  const auto reaches = [&](unsigned long long sum) {
    return static_cast<double>(reach.above + sum) >= reach.wanted;
  };
  if (!reaches(0) && reaches(mine)) {
    for (; !reaches(scratch.in_bin(bin)); --bin) reach.above += scratch.in_bin(bin);
    reach.key |= static_cast<uint32_t>(bin) << shift_of(unknown);
    reach.inside = scratch.in_bin(bin);
    scratch.reach = reach;
  }
  synchronize_block();
}

// Where the sum of weights, in the order of keys, first reaches wanted(sum of all); the key there is not below `lowest`. begun: with all
// digits but these of so many bits.
template <typename Entries, typename Wanted, typename Weight>
__device__ const Reach& where_sum_reaches(const Entries& entries, Wanted wanted_of, Weight weight,
                                          uint32_t lowest = 0, const Reach& begun = {}, int unknown = 32) {
  if (thread_index() == 0) filter_scratch().reach = begun;  // stays where nothing has a weight
  for (; unknown > 0; unknown -= digit_bits) {
    add_weights(entries, unknown, weight, lowest);
    find_digit(unknown, wanted_of);
  }
  return filter_scratch().reach;
}

// Of the entries with the key that was found, as many as the sum needs, by ascending id.
template <typename Entries, typename Weight>
__device__ Cut cut_of_reach(const Entries& entries, Weight weight, const Reach& reach) {
  FilterScratch& scratch = filter_scratch();
  const unsigned long long each = weight(reach.key), ties = reach.inside / each;
  const auto taken = first_where(0ull, ties, [&](unsigned long long number) {
    return static_cast<double>(reach.above + number * each) >= reach.wanted;
  });
  const float logit = logit_of(reach.key);
  return {logit,
          taken < ties ? entries.tie(logit, static_cast<int>(taken), scratch.counts, &scratch.id) : INT_MAX};
}

// The logit of the n-th entry, or of the last.
template <typename Entries>
__device__ float nth_logit(const Entries& entries, int n) {
  const auto wanted = [&](double all) { return fmin(all, n); };
  return logit_of(where_sum_reaches(entries, wanted, [](uint32_t) { return 1ull; }).key);
}

// What min_p and top_p leave of the entries from a key on. largest: of all. most: no fewer than there are entries.
struct Likely {
  float temperature, top_p, maximum;  // the largest, divided by the temperature
  // Keys: min_p leaves those from the smallest on; the sum of shares is reached from the lowest on.
  uint32_t smallest, lowest;

  __device__ Likely(const SamplingRow& row, float largest, int most, uint32_t from)
      : temperature(row.temperature), top_p(row.top_p), maximum(largest / row.temperature), smallest(from) {
    if (row.min_p > 0) {
      const float floor = logf(row.min_p);
      const uint32_t passes = first_where(key_of(-INFINITY) - 1, key_of(largest),
                                          [&](uint32_t key) { return relative(key) >= floor; });
      if (passes > smallest) smallest = passes;
    }
    // Entries below the floor together have at most half of what top_p leaves over, for all have at least the largest one's share: the sum
    // reaches it without them. Rounding is below the margins.
    const float floor = logf((1 - top_p) * 0.5f / most) - 0.01f - 0x1p-20f * fabsf(maximum);
    lowest = key_of((floor + maximum) * temperature);
  }
  __device__ float relative(uint32_t key) const { return distance(logit_of(key) / temperature, maximum); }
  // A probability as an integer, in units of 2^-40 of the largest.
  __device__ unsigned long long share(uint32_t key) const {
    return key < smallest ? 0ull : static_cast<unsigned long long>(expf(relative(key)) * 0x1p40f);
  }
  __device__ double wanted(double all) const { return top_p * all > 1 ? top_p * all : 1; }
};

// row: a copy, which writes to shared memory cannot change.
template <typename Entries>
__device__ Cut likely_of(const Entries& entries, const SamplingRow row, float kept) {
  const Likely likely(row, maximum_of(entries), entries.most(), key_of(kept));
  if (row.top_p >= 1) return {logit_of(likely.smallest), INT_MAX};
  const auto share = [&](uint32_t key) { return likely.share(key); };
  return cut_of_reach(entries, share,
                      where_sum_reaches(
                          entries, [&](double all) { return likely.wanted(all); }, share, likely.lowest));
}

// --- whole rows: several blocks each, where they are few ---

// What a row's kernels hand on.
struct RowSearch {
  Reach reach;
  float maxima[max_parts];            // of its parts
  int32_t arrivals, found;            // parts; entries of the list
  unsigned long long sums[num_bins];  // over parts; zero between kernels
};

struct FilteredRows {
  Logits logits;
  bool in_place;
  const int32_t* listed;
  const SamplingRow* how;
  RowSearch* searches;
  TokenLogit* lists;  // [rows, logits.count]

  __device__ const SamplingRow& filters(int i) const { return how[listed[i]]; }
  __device__ bool has(int i) const { return filters(i).filtered() && !filters(i).filtered_by_candidates(); }
  // Whether more is to be found than what min_p leaves.
  __device__ bool searches_row(int i) const {
    return has(i) && (filters(i).top_k > 0 || filters(i).top_p < 1);
  }
  __device__ TokenLogit* list(int i) const { return lists + static_cast<int64_t>(i) * logits.count; }
  __device__ Columns columns(int i, int part = 0, int parts = 1) const {
    return Columns(logits, in_place ? listed[i] : i, part, parts);
  }
  __device__ Likely likely(int i, int parts) const {
    float largest = -INFINITY;
    for (int part = 0; part < parts; ++part) largest = larger(largest, searches[i].maxima[part]);
    return Likely(filters(i), largest, logits.count, key_of(-INFINITY));
  }
};

// Block (part, row), as below.
__global__ void __launch_bounds__(row_threads) begin_search(FilteredRows rows) {
  const int i = block_index().y, part = block_index().x, parts = grid_size().x;
  if (!rows.has(i)) return;
  RowSearch& search = rows.searches[i];
  for (int bin = part * row_threads + thread_index(); bin < num_bins; bin += parts * row_threads)
    search.sums[bin] = 0;
  const float maximum = rows.filters(i).top_k > 0 ? 0 : maximum_of(rows.columns(i, part, parts));
  if (thread_index() > 0) return;
  search.maxima[part] = maximum;
  if (part == 0) search.reach = {}, search.arrivals = search.found = 0;
}

// Finds the next digit of where top_k cuts, or else top_p. The last block of a row has the sums of all.
__global__ void __launch_bounds__(row_threads, 1) next_digit(FilteredRows rows, int unknown) {
  const int i = block_index().y, parts = grid_size().x, top_k = rows.filters(i).top_k;
  if (!rows.searches_row(i)) return;
  RowSearch& search = rows.searches[i];
  FilterScratch& scratch = filter_scratch();
  const Likely likely = rows.likely(i, parts);
  if (thread_index() == 0) scratch.reach = search.reach;
  add_weights(
      rows.columns(i, block_index().x, parts), unknown,
      [&](uint32_t key) { return top_k > 0 ? 1ull : likely.share(key); }, top_k > 0 ? 0 : likely.lowest);
  if (parts > 1) {
    for (int bin = thread_index(); bin < num_bins; bin += row_threads)
      if (const unsigned long long sum = scratch.in_bin(bin)) atomic_add(&search.sums[bin], sum);
    if (!is_last_to_arrive(&search.arrivals, parts, scratch.before)) return;
    memory_fence();
    for (int bin = thread_index(); bin < num_bins; bin += row_threads) {
      scratch.put(bin, search.sums[bin]);
      search.sums[bin] = 0;
    }
    synchronize_block();
  }
  find_digit(unknown, [&](double all) { return top_k > 0 ? fmin(all, top_k) : likely.wanted(all); });
  if (thread_index() == 0) search.reach = scratch.reach;
}

// Lists the entries with the digits of the key that were found; of a top_k also those before them, for the filters after it. The last
// block of a row finds the rest in the list. Top_k keeps ties.
__global__ void __launch_bounds__(row_threads, 1) cut_rest(FilteredRows rows, Cut* cuts) {
  const int i = block_index().y, parts = grid_size().x;
  if (!rows.has(i)) return;
  const SamplingRow how = rows.filters(i);
  RowSearch& search = rows.searches[i];
  const uint32_t first = search.reach.key,
                 last = how.top_k > 0 ? UINT32_MAX : first | ((1u << rest_bits) - 1);
  if (rows.searches_row(i))
    rows.columns(i, block_index().x, parts).for_each([&](int32_t id, float logit, int) {
      if (const uint32_t key = key_of(logit); first <= key && key <= last)
        rows.list(i)[atomic_add(&search.found, 1)] = {id, logit_of(key)};
    });
  if (!is_last_to_arrive(&search.arrivals, parts, filter_scratch().before)) return;
  memory_fence();
  const Listed list{rows.list(i), search.found};
  Cut cut;
  if (how.top_k > 0) {
    cut.logit = nth_logit(list, how.top_k);
    if (how.top_p < 1 || how.min_p > 0) cut = likely_of(list, how, cut.logit);
  } else {
    const Likely likely = rows.likely(i, parts);
    const auto share = [&](uint32_t key) { return likely.share(key); };
    cut.logit = logit_of(likely.smallest);
    if (how.top_p < 1)
      cut = cut_of_reach(list, share,
                         where_sum_reaches(
                             list, [](double) { return 0; }, share, 0, search.reach, rest_bits));
  }
  if (thread_index() == 0) cuts[rows.listed[i]] = cut;
}

// One listed row per block.
__global__ void __launch_bounds__(max_threads, 2)
    cut_of_lists(const CandidateList* lists, int shards, Logits logits, const int32_t* listed,
                 const SamplingRow* how, Cut* cuts) {
  const int row = listed[block_index().x];
  const Lists entries{lists + block_index().x, shards, grid_size().x, {logits, row}};
  const Cut cut = likely_of(entries, how[row], nth_logit(entries, how[row].top_k));
  if (thread_index() == 0) cuts[row] = cut;
}

}  // namespace

void filter_candidates(Stream stream, const CandidateList* lists, int shards, const Logits& logits,
                       const int32_t* listed, int rows, const SamplingRow* how, Cut* cuts) {
  launch(cut_of_lists, {rows}, max_threads, sizeof(FilterScratch), stream, lists, shards, logits, listed, how,
         cuts);
}

int64_t filter_bytes(const Logits& logits) {
  return static_cast<int64_t>(sizeof(RowSearch)) + logits.count * static_cast<int64_t>(sizeof(TokenLogit));
}

void filter_logits(Stream stream, const Logits& logits, bool in_place, const int32_t* listed, int rows,
                   const SamplingRow* how, std::span<std::byte> room, Cut* cuts) {
  const int most = static_cast<int>(std::ssize(room) / filter_bytes(logits));
  for (int first = 0, count; first < rows; first += count) {
    count = std::min(most, rows - first);
    FilteredRows part{logits,
                      in_place,
                      listed + first,
                      how,
                      reinterpret_cast<RowSearch*>(room.data()),
                      reinterpret_cast<TokenLogit*>(room.data() + count * sizeof(RowSearch))};
    if (!in_place) part.logits.logits += static_cast<int64_t>(first) * logits.width;
    const int parts = parts_of(logits, count, 264);
    launch(begin_search, {parts, count}, row_threads, sizeof(FilterScratch), stream, part);
    for (int unknown = 32; unknown > rest_bits; unknown -= digit_bits)
      launch(next_digit, {parts, count}, row_threads, sizeof(FilterScratch), stream, part, unknown);
    launch(cut_rest, {parts, count}, row_threads, sizeof(FilterScratch), stream, part, cuts);
  }
}

}  // namespace maniple::cuda
