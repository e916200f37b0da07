#include <kernels/cuda/experts.hpp>
#include <kernels/cuda/product_tiles.hpp>
#include <kernels/cuda/reductions.hpp>

#include <algorithm>

namespace maniple::cuda {

using namespace device;

namespace {

// The rows of one expert that a block multiplies, in shared memory because registers are full. m is 0 for a spare block.
template <int rows>
struct Work {
  const void* weight;
  FinishArguments finish;  // of elements its bias alone
  int64_t first_row;
  int m;
  int x_row[rows];
  int scratch[product_warps];
};

// Block x takes the x-th tile of `rows` rows, expert after expert: a launch has more tiles than the other sides of a grid hold. All threads of the block call it.
template <int rows>
__device__ void find_work(const GroupedArguments& a, Work<rows>& work) {
  if (thread_index() == 0) work.m = 0;
  int before = 0;  // tiles of the experts before these
  for (int base = 0; base < a.experts; base += block_threads()) {
    const int expert = base + thread_index();
    const int64_t most = a.first_row + a.most_rows;
    const int64_t first =
        expert < a.experts && a.offsets[expert] > a.first_row ? a.offsets[expert] : a.first_row;
    const int64_t end = expert < a.experts && a.offsets[expert + 1] < most ? a.offsets[expert + 1] : most;
    const int count = expert < a.experts && first < end ? static_cast<int>(end - first) : 0;
    const int tiles = (count + rows - 1) / rows;
    int total;
    const int tile = block_index().x - before - block_sum_before(tiles, work.scratch, total);
    before += total;
    if (tile < 0 || tile >= tiles) continue;
    const int left = count - tile * rows;
    if (a.bits > 0)
      work.finish = {a.codes[expert], a.input_scales, nullptr};
    else
      work.weight = a.weights[expert];
    work.finish.bias = a.biases ? a.biases + static_cast<int64_t>(expert) * a.n : nullptr;
    work.first_row = first + tile * rows;
    work.m = left < rows ? left : rows;
  }
  synchronize_block();
  for (int i = thread_index(); i < work.m; i += block_threads())
    work.x_row[i] =
        a.x_rows ? a.x_rows[work.first_row + i] : static_cast<int>(work.first_row - a.first_row + i);
  synchronize_block();
}

template <typename T, int size, int bits_of_element>
struct GroupedOperands {
  using Element = T;
  static constexpr int bits = bits_of_element;
  const GroupedArguments& a;
  const Work<size>& work;

  static constexpr bool gathers() { return true; }
  __device__ const T* weight() const { return static_cast<const T*>(work.weight); }
  __device__ const CodeMatrix& codes() const { return work.finish.codes; }
  __device__ float finished(float sum, int row, int column) const {
    return cuda::finished<bits>(work.finish, sum, work.x_row[row], column);
  }
  __device__ const T* x(int row) const {
    return static_cast<const T*>(a.x) + static_cast<int64_t>(work.x_row[row]) * a.k;
  }
  __device__ int rows() const { return work.m; }
  __device__ int width() const { return a.width; }
};

template <int rows, int bits>
constexpr size_t work_at = (ProductTile<rows, bits>::bytes + 7) / 8 * 8;

template <typename T, int rows, bool aligned, int bits>
__global__ void __launch_bounds__(32 * product_warps, rows <= 16 ? 3 : 2) grouped_tile(GroupedArguments a) {
  using Operands = GroupedOperands<T, rows, bits>;
  using Product = TileProduct<Operands, rows, aligned>;
  Work<rows>& work = *reinterpret_cast<Work<rows>*>(shared_memory() + work_at<rows, bits>);
  find_work(a, work);
  if (work.m == 0) return;
  const Operands operands{a, work};
  Product product(operands, block_index().y);
  product.multiply(0, 1, [] {});
  product.write(work.first_row, [&](int row, int column) {
    return operands.finished(Product::sum_of_warps(row, column), row, product.column_of(column));
  });
}

constexpr int plain_rows = 8;

// fp32, without tensor cores: one thread per column of a tile of eight rows.
template <int bits>
__global__ void __launch_bounds__(32 * product_warps, 6) grouped_plain(GroupedArguments a) {
  Work<plain_rows>& work = *reinterpret_cast<Work<plain_rows>*>(shared_memory());
  find_work(a, work);
  const int column = block_index().y * block_threads() + thread_index();
  if (work.m == 0 || column >= a.width) return;
  const GroupedOperands<float, plain_rows, bits> operands{a, work};
  const ColumnGroups groups = bits < 16 ? ColumnGroups(work.finish.codes) : ColumnGroups();
  const auto element = [&](int row, int i) {
    if constexpr (bits < 16)
      return element_at<bits>(work.finish.codes, groups, row, i);
    else
      return operands.weight()[static_cast<int64_t>(row) * a.k + i];
  };
  const int k = bits < 16 ? work.finish.codes.columns : a.k, up_column = column + a.n / 2;
  for (int row = 0; row < work.m; ++row) {
    const float* const x = operands.x(row);
    float sum = 0, up_sum = 0;
    for (int i = 0; i < k; ++i) {
      sum += x[i] * element(column, i);
      if (a.gated) up_sum += x[i] * element(up_column, i);
    }
    sum = operands.finished(sum, row, column);
    if (a.gated) up_sum = operands.finished(up_sum, row, up_column);
    static_cast<float*>(a.out)[(work.first_row + row) * a.width + column] =
        a.gated ? gated(a.gate, sum, up_sum) : sum;
  }
}

// All tiles that the most rows can need.
int tiles_of(const GroupedArguments& a, int rows) {
  return static_cast<int>(a.most_rows / rows + std::min<int64_t>(a.experts, a.most_rows));
}

template <typename T, int rows>
void launch_grouped(Stream stream, const GroupedArguments& a) {
  const int side = columns_for(rows) / (a.gated ? 2 : 1);
  const auto launch_tiles = [&](auto kernel, size_t bytes) {
    launch(kernel, {tiles_of(a, rows), (a.width + side - 1) / side}, 32 * product_warps,
           bytes + sizeof(Work<rows>), stream, a);
  };
  if (a.bits == 4) return launch_tiles(grouped_tile<T, rows, true, 4>, work_at<rows, 4>);
  if (a.bits == 8) return launch_tiles(grouped_tile<T, rows, true, 8>, work_at<rows, 8>);
  launch_tiles(a.aligned ? grouped_tile<T, rows, true, 16> : grouped_tile<T, rows, false, 16>,
               work_at<rows, 16>);
}

}  // namespace

void grouped_product(Stream stream, const GroupedArguments& a) {
  const bool tiled = with_tensor_core_type(a.dtype, [&]<typename T>(T) {
    // Tiles as large as an expert's rows on average: small ones read a weight again, large ones compute rows that are not there.
    const int64_t average = (a.most_rows + a.experts - 1) / a.experts;
    with_tile_rows(average, [&](auto rows) { launch_grouped<T, rows()>(stream, a); });
  });
  if (tiled) return;
  constexpr int threads = 32 * product_warps;
  launch(a.bits == 4   ? grouped_plain<4>
         : a.bits == 8 ? grouped_plain<8>
                       : grouped_plain<32>,
         {tiles_of(a, plain_rows), (a.width + threads - 1) / threads}, threads, sizeof(Work<plain_rows>),
         stream, a);
}

}  // namespace maniple::cuda
