// Attention with the heads of Qwen3-0.6B in bf16: decode as KV bytes read per second,
// against the read bandwidth just before, and prefill as arithmetic. Calls walk
// through 2 GiB of pages, as a forward pass walks through layers, so keys and values
// come from memory. Alternating rounds, medians. Prints Markdown tables: one of decode over
// windows, as the mean of 256 steps from a context of 8,192 on, beside full attention to as many
// tokens as the window has; the last ones
// of latent attention with the rows of DeepSeek-V3, where `of bound` is the time against
// the larger of bytes / (0.8 of the read bandwidth) and operations / (0.65 of dot products
// from registers), and of the expanded form beside it.
//   attention_bench [--threads n] [--rounds n] [--path avx512]

#include <bench/bandwidth.hpp>
#include <bench/cpu_path.hpp>
#include <bench/dot_peak.hpp>

#include <kernels/cpu/cpu_ops.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace maniple::bench {
namespace {

constexpr HeadLayout grouped_heads{16, 8, 128};
constexpr int64_t block_size = 256, page_bytes = int64_t{2} << 30;
HeadLayout latent_heads(int64_t heads) { return {heads, 1, 576, 512}; }
HeadLayout expanded_heads(int64_t heads) { return {heads, heads, 192, 128}; }

struct Options {
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int rounds = 7;
  CpuPath path = CpuPath::automatic;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--threads")
      options.threads = std::atoi(argv[i + 1]);
    else if (name == "--rounds")
      options.rounds = std::atoi(argv[i + 1]);
    else if (name == "--path")
      options.path = cpu_path_named(argv[i + 1]);
    else
      fail(ExitCode::usage, "unknown option {}; use --threads, --rounds or --path", name);
  }
  return options;
}

// Values in [-1, 1), 65536 of them repeated.
Tensor filled(Device& device, const Shape& shape) {
  Tensor tensor(device, DType::bf16, shape);
  auto* values = tensor.view().as<BFloat16>();
  uint32_t state = 1;
  for (int64_t i = 0; i < shape.elements(); ++i) {
    if (i < 65536)
      values[i] = BFloat16(static_cast<float>(static_cast<int32_t>(state = state * 1664525u + 1013904223u)) *
                           0x1p-31f);
    else
      values[i] = values[i - 65536];
  }
  return tensor;
}

// Memory that calls walk through, for any heads.
struct Pages {
  explicit Pages(Device& device) : memory(filled(device, {page_bytes / 2})) {}

  static KvLayout layout(const HeadLayout& heads) {
    return {heads.kv_heads, heads.key_dim,   block_size,
            DType::bf16,    heads.value_dim, heads.kv_heads == 1 && heads.key_dim != heads.value_dim};
  }
  static int64_t blocks(const HeadLayout& heads) {
    return page_bytes / static_cast<int64_t>(layout(heads).block_bytes());
  }
  KvPages view(const HeadLayout& heads) {
    const Shape shape{blocks(heads), static_cast<int64_t>(layout(heads).block_bytes())};
    return {{memory.view().data, DType::uint8, shape}, layout(heads)};
  }

  Tensor memory;
  int64_t next_block = 0;
};

// `batch` sequences of the same length; the last `queries` tokens of each are attended.
class Case {
 public:
  Case(Device& device, const HeadLayout& layout, int64_t sequences, int64_t length, int64_t queries_each,
       int64_t seen = 0)
      : heads(layout),
        window(seen),
        batch(sequences),
        context(length),
        queries(queries_each),
        table_(static_cast<size_t>(batch * width())),
        positions_(static_cast<size_t>(batch * queries)),
        past_(static_cast<size_t>(batch), static_cast<int32_t>(context - queries)),
        q_(filled(device, {batch * queries, heads.query_width()})),
        out_(device, DType::bf16, {batch * queries, heads.out_width()}) {
    for (int64_t s = 0; s <= batch; ++s) {
      starts_.push_back(static_cast<int32_t>(s * queries));
      seats_.push_back(static_cast<int32_t>(s));
    }
  }

  // Records the seconds of one call, as the mean of enough calls to time them.
  void measure(Ops& ops, Pages& pages) {
    const int64_t calls = window > 0 ? steps : std::max<int64_t>(1, 32768 / (batch * context));
    double total = 0;
    for (int64_t call = 0; call < calls; ++call) {
      take_blocks(pages);
      if (window > 0) std::ranges::fill(past_, static_cast<int32_t>(context - 1 + call));
      const auto start = Clock::now();
      ops.attention({q_, heads, attention_batch(), pages.view(heads), out_, 0.088388f, window});
      total += seconds_since(start);
    }
    seconds.push_back(total / static_cast<double>(calls));
  }

  double bytes() const {
    return static_cast<double>(batch * context * Pages::layout(heads).lanes()) * sizeof(BFloat16);
  }
  // Two products of two operations for each query, visible position and dimension.
  double operations() const {
    return static_cast<double>(batch * queries * (heads.query_width() + heads.out_width())) * 2 *
           (static_cast<double>(context) - 0.5 * static_cast<double>(queries - 1));
  }

  static constexpr int64_t steps = block_size;  // of decode over a window
  const HeadLayout heads;
  const int64_t window, batch, context, queries;
  std::vector<double> seconds, of_bandwidth, of_bound;

 private:
  int64_t width() const { return (context + block_size - 1) / block_size + (window > 0 ? 1 : 0); }

  void take_blocks(Pages& pages) {
    for (int32_t& block : table_) block = static_cast<int32_t>(pages.next_block++ % Pages::blocks(heads));
  }
  AttentionBatch attention_batch() const {
    const auto ints = [](const std::vector<int32_t>& v, const Shape& shape) {
      return view_of(v.data(), DType::int32, shape);
    };
    const int64_t tokens = batch * queries;
    return {ints(starts_, {batch + 1}),     ints(past_, {batch}),       ints(seats_, {batch}),
            ints(table_, {batch, width()}), ints(positions_, {tokens}), ints(positions_, {tokens})};
  }

  std::vector<int32_t> starts_, seats_, table_, positions_,
      past_;  // attention reads neither positions nor slots
  Tensor q_, out_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(const Options& options) {
  ThreadPool pool(options.threads);
  const CpuPath path = cpu::chosen_path(options.path);
  CpuDevice device("cpu");
  cpu::CpuOps ops(device, std::make_unique<ThreadPool>(options.threads), path);
  ReadBandwidth read(device);
  Pages pages(device);
  std::vector<Case> cases;
  for (const int64_t context : {160, 512, 4096, 16384})
    for (const int64_t batch : {1, 8, 32}) cases.emplace_back(device, grouped_heads, batch, context, 1);
  for (const int64_t window : {128, 1024, 4096})
    for (const int64_t batch : {1, 8}) {
      cases.emplace_back(device, grouped_heads, batch, window, 1);
      cases.emplace_back(device, grouped_heads, batch, 8192, 1, window);
    }
  for (const int64_t prompt : {512, 2048, 4096}) cases.emplace_back(device, grouped_heads, 1, prompt, prompt);
  for (const int64_t heads : {4, 8, 16, 128})
    for (const int64_t context : {512, 4096})
      for (const int64_t batch : {1, 8}) cases.emplace_back(device, latent_heads(heads), batch, context, 1);
  for (const int64_t prompt : {512, 2048}) {
    cases.emplace_back(device, latent_heads(16), 1, prompt, prompt);
    cases.emplace_back(device, expanded_heads(16), 1, prompt, prompt);
  }
  const double peak = product_peak(pool, path);

  std::vector<double> bandwidth;
  for (int round = 0; round < options.rounds; ++round)
    for (Case& c : cases) {
      bandwidth.push_back(read.measure(pool));
      c.measure(ops, pages);
      c.of_bandwidth.push_back(c.bytes() / c.seconds.back() / bandwidth.back());
      c.of_bound.push_back(c.seconds.back() /
                           std::max(c.bytes() / (0.8 * bandwidth.back()), c.operations() / (0.65e9 * peak)));
    }

  fmt::print(
      "{} threads, {}, read bandwidth {:.1f} GB/s, dot products from registers {:.0f} GFLOP/s, median of {} "
      "rounds\n\n",
      options.threads, name_of(path), median(bandwidth) / 1e9, peak, options.rounds);
  fmt::print("| decode: context | sequences | ms | KV GB/s | of read bandwidth |\n|---|---|---|---|---|\n");
  for (const Case& c : cases)
    if (c.queries == 1 && c.heads.kv_heads > 1 && c.window == 0) {
      const double seconds = median(c.seconds);
      fmt::print("| {} | {} | {:.3f} | {:.1f} | {:.0f} % |\n", c.context, c.batch, seconds * 1e3,
                 c.bytes() / seconds / 1e9, 100 * median(c.of_bandwidth));
    }
  fmt::print(
      "\n| decode over a window | sequences | ms | of full attention to as many |\n|---|---|---|---|\n");
  for (const Case& c : cases)
    if (c.window > 0)
      fmt::print("| {} | {} | {:.3f} | {:.2f} |\n", c.window, c.batch, median(c.seconds) * 1e3,
                 median(c.seconds) / median((&c - 1)->seconds));
  fmt::print("\n| prefill: tokens | heads | keys, values | ms | GFLOP/s |\n|---|---|---|---|---|\n");
  for (const Case& c : cases)
    if (c.queries > 1) {
      const double seconds = median(c.seconds);
      fmt::print("| {} | {} | {}, {} | {:.2f} | {:.0f} |\n", c.queries, c.heads.query_heads, c.heads.key_dim,
                 c.heads.value_dim, seconds * 1e3, c.operations() / seconds / 1e9);
    }
  fmt::print(
      "\n| latent decode: heads | context | sequences | ms | KV GB/s | GFLOP/s | of bound "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const Case& c : cases)
    if (c.queries == 1 && c.heads.kv_heads == 1) {
      const double seconds = median(c.seconds);
      fmt::print("| {} | {} | {} | {:.3f} | {:.1f} | {:.0f} | {:.2f} |\n", c.heads.query_heads, c.context,
                 c.batch, seconds * 1e3, c.bytes() / seconds / 1e9, c.operations() / seconds / 1e9,
                 median(c.of_bound));
    }
}

}  // namespace
}  // namespace maniple::bench

int main(int argc, char** argv) {
  try {
    maniple::bench::run(maniple::bench::parse(argc, argv));
  } catch (const maniple::Error& error) {
    fmt::print(stderr, "attention_bench: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
