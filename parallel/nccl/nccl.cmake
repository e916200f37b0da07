# Adds NCCL to maniple_parallel_mpi where the CUDA backend is built. For an NCCL outside the CUDA toolkit give
# -DCMAKE_PREFIX_PATH=FOLDER (for a Python wheel: site-packages/nvidia/nccl). Without NCCL, GPU tensors go through the
# host; with MANIPLE_CUDA=ON a missing NCCL is an error.
if(NOT with_cuda)
  return()
endif()

set(oldest_nccl 2.14)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib)
set(nccl_version 0)
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h lines REGEX "^#define NCCL_(MAJOR|MINOR) ")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+)" "\\1.\\2" nccl_version "${lines}")
endif()

if(NOT NCCL_LIBRARY OR nccl_version VERSION_LESS oldest_nccl)
  string(CONCAT missing "no NCCL ${oldest_nccl} or newer was found (header: ${NCCL_INCLUDE_DIR}, version ${nccl_version}; library: ${NCCL_LIBRARY}); "
         "install libnccl-dev, or set CMAKE_PREFIX_PATH to where it is")
  if(MANIPLE_CUDA STREQUAL AUTO)
    message(STATUS "GPU tensors go through the host: ${missing}")
    return()
  endif()
  message(FATAL_ERROR "MANIPLE_CUDA=${MANIPLE_CUDA}, but ${missing}, or use -DMANIPLE_CUDA=AUTO or OFF")
endif()
set(with_nccl ON)
message(STATUS "NCCL ${nccl_version}: ${NCCL_LIBRARY}")

target_sources(maniple_parallel_mpi PRIVATE parallel/nccl/nccl_api.cpp)
target_compile_definitions(maniple_parallel_mpi PRIVATE MANIPLE_NCCL=1)
target_include_directories(maniple_parallel_mpi SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
target_include_directories(maniple_parallel_mpi PRIVATE ${PROJECT_SOURCE_DIR}/kernels/cuda)  # <device/stream.hpp>
target_link_libraries(maniple_parallel_mpi PRIVATE CUDA::cudart_static)
# nccl_api.cpp opens this file at run time, before it tries the loader's path.
cmake_path(REPLACE_FILENAME NCCL_LIBRARY libnccl.so.2 OUTPUT_VARIABLE nccl)
set_source_files_properties(parallel/nccl/nccl_api.cpp PROPERTIES COMPILE_DEFINITIONS MANIPLE_NCCL_LIBRARY="${nccl}")
