# Copyright: the authors of maniple, BSD-3-Clause.
# Add it to a repository of the site: spack repo create REPO; mkdir REPO/packages/maniple; cp package.py there; spack repo add REPO.
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Maniple(CMakePackage, CudaPackage):
    """Runs large language models as an MPI program, on GPUs or processors."""

    homepage = "@URL@"
    url = "@URL@/maniple-@VERSION@.tar.gz"

    license("BSD-3-Clause")

    version("@VERSION@", sha256="@SHA256@")

    variant("nccl", default=True, when="+cuda", description="GPU tensors between ranks over NCCL")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi@3:")
    depends_on("boost@1.74: +program_options +math +random")
    depends_on("fmt@8.1.1:")
    depends_on("icu4c@67:")
    depends_on("nlohmann-json@3.10:")
    depends_on("pcre2@10.40: +jit")
    depends_on("xxhash@0.8:")
    depends_on("hdf5@1.10.5:")
    depends_on("zlib-api")
    depends_on("zstd@1.4:")
    depends_on("cuda@@CUDA@:", when="+cuda")
    depends_on("nccl@@NCCL@:", when="+nccl")

    conflicts("%gcc@:11", msg="gcc 12 is the first with __builtin_shufflevector")
    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs: cuda_arch=90")

    generator("ninja")

    def cmake_args(self):
        cuda = "OFF" if "~cuda" in self.spec else "ON" if "+nccl" in self.spec else "AUTO"
        args = [self.define("MANIPLE_TESTS", False), self.define("MANIPLE_CUDA", cuda)]
        if "+cuda" in self.spec:
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return args

    @run_after("install")
    def starts(self):
        Executable(self.prefix.bin.maniple)("--version")
