#include <kernels/cuda/cublaslt.hpp>

namespace maniple::cuda {

const CublasLt& cublaslt() {
  static const CublasLt opened{SharedLibrary(
      MANIPLE_CUBLASLT, "the cuda backend multiplies matrices with it",
      fmt::format(
          "load the site's CUDA {0} (module load cuda) or add its library folder to LD_LIBRARY_PATH; "
          "packages: "
          "libcublas-{0}-* of NVIDIA's Debian repository, libcublas {0} of conda-forge, nvidia-cublas {0} of "
          "PyPI; or use `backend` cpu",
          CUBLAS_VER_MAJOR))};
  return opened;
}

}  // namespace maniple::cuda
