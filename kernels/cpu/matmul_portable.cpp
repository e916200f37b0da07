#include <kernels/cpu/matmul_widen.inl>

namespace maniple::cpu {
namespace {

// Four lanes of the compilers' vector extension: plain C++ on any processor.
struct Sums {
  using Sum = float __attribute__((vector_size(16)));
  using Units = uint32_t __attribute__((vector_size(16)));
  static constexpr int lanes = 4, registers = 8;

  static Sum zero() { return Sum{}; }
  static Units load(const uint32_t* units) {
    Units loaded;
    __builtin_memcpy(&loaded, units, sizeof loaded);
    return loaded;
  }
};

struct Fp32 : Sums {
  using Weight = Sum;
  using Activation = float;

  static Weight weight(const uint32_t* units) { return (Sum)load(units); }
  static Activation activation(const uint32_t* unit) {
    float value;
    __builtin_memcpy(&value, unit, 4);
    return value;
  }
  static Sum dot(Sum sum, Weight w, Activation x) { return sum + w * x; }
  static void store_weight(uint32_t* to, Sum weight) { cpu::store(to, weight); }
};

// Unsigned codes times signed ones.
struct Integers {
  using Sum = Ints;
  using Weight = Ints;
  struct Activation {
    int32_t codes[4];
  };
  static constexpr int lanes = 4, registers = 8;

  static Sum zero() { return Sum{}; }
  static Weight weight(const uint32_t* units) { return load<Ints>(units); }
  static Activation activation(const uint32_t* unit) {
    int8_t codes[4];
    __builtin_memcpy(codes, unit, 4);
    return {{codes[0], codes[1], codes[2], codes[3]}};
  }
  static Sum dot(Sum sum, Weight w, Activation x) {
    for (int k = 0; k < 4; ++k) sum += (w >> 8 * k & 0xff) * x.codes[k];
    return sum;
  }
};

}  // namespace

void matmul_bf16_portable(const MatmulBlock& block) {
  multiply_block<VectorKernel<Fp32, 4, Bf16ToFloats>>(block);
}
void matmul_fp32_portable(const MatmulBlock& block) { multiply_block<VectorKernel<Fp32, 4>>(block); }
void matmul_integers_portable(const CodeBlock& block) {
  multiply_codes<IntegerProducts<VectorKernel<Integers, 4>>>(block);
}
CodeKernels code_kernels_portable() { return code_kernels<Fp32, 4>(); }

}  // namespace maniple::cpu
