// Which instruction path a processor should take.
#pragma once

#include <kernels/backend.hpp>

namespace maniple::cpu {

// `asked`, or the best path where it is automatic. Throws Error (preflight), naming what there is, when this
// processor lacks it.
CpuPath chosen_path(CpuPath asked);

}  // namespace maniple::cpu
