// The kernels of one instruction path: everything in the CPU backend that depends on the processor.
#pragma once

#include <kernels/backend.hpp>
#include <kernels/cpu/attention_kernel.hpp>
#include <kernels/cpu/elementwise_kernel.hpp>
#include <kernels/cpu/matmul_kernel.hpp>
#include <kernels/cpu/rotary_kernel.hpp>

namespace maniple::cpu {

// The order of the units of a panel: [slice][units / step][32 / width][step][width].
// A unit is 32 bits, two bf16 or one fp32 in K.
struct PanelLayout {
  int group;  // K in a unit
  int step;   // units in a K step, a power of two; a slice is padded to whole steps
  int width;  // rows side by side, a power of two

  // Units of one row in a slice, padding included.
  int64_t row_units(int64_t slice_columns) const {
    const int64_t units = (slice_columns + group - 1) / group;
    return (units + step - 1) & -step;
  }
  // Unit `unit` of weight row `lane` is at
  // unit_offset + lane_offset from the start of its slice in the panel.
  int64_t unit_offset(int64_t unit) const {
    return (unit & -step) * panel_width + (unit & (step - 1)) * width;
  }
  int lane_offset(int lane) const { return (lane & -width) * step + (lane & (width - 1)); }
};

struct PackedMatmul {
  MatmulKernel run;
  int tile_rows, row_step;  // of RowTiles
  PanelLayout layout;       // of weights
  PanelLayout x;  // of activations: a unit of bf16 weights meets one of bf16, or two that are widened to fp32
};

// A product with codes: words are packed by `words`, activations by `x`.
struct PackedCodes {
  CodeKernel run;
  int tile_rows, row_step;
  PanelLayout words, x;

  int x_units() const { return words.group / x.group; }  // for a word
};

struct PathKernels {
  // For activations of one type.
  struct Typed {
    PackedMatmul matmul;
    CodeKernels codes;
    InputKernels inputs;
    RowKernels rows;
    AttentionKernel attention;
    RotaryKernel rotary;
  };
  Typed bf16, fp32;
  PackedCodes integers;
  SamplingKernels sampling;

  const Typed& of(DType dtype) const {
    require(dtype == DType::bf16 || dtype == DType::fp32, "weights and activations are bf16 or fp32");
    return dtype == DType::bf16 ? bf16 : fp32;
  }
};

// path: not automatic.
PathKernels kernels_of(CpuPath path);

// Returns `asked`, or the best path for automatic. Throws Error
// (preflight), with the available paths, when this processor lacks it.
CpuPath chosen_path(CpuPath asked);

}  // namespace maniple::cpu
