# Adds the CUDA backend to maniple_kernels where the toolkit is found.
if(MANIPLE_CUDA STREQUAL AUTO)
  include(CheckLanguage)
  check_language(CUDA)
  find_package(CUDAToolkit 12.4 QUIET)
  if(NOT CMAKE_CUDA_COMPILER OR NOT TARGET CUDA::cublasLt)
    message(STATUS "no CUDA backend: nvcc or cuBLAS was not found")
    set(with_cuda OFF)
  else()
    set(with_cuda ON)
  endif()
else()
  set(with_cuda ${MANIPLE_CUDA})
endif()
if(NOT with_cuda)
  return()
endif()

find_package(CUDAToolkit 12.4 REQUIRED)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  # Architectures that the toolkit knows. The newest of data centres also as PTX, for later GPUs.
  execute_process(COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} --list-gpu-arch OUTPUT_VARIABLE known)
  foreach(architecture 80 86 89 90 100 120)
    if(known MATCHES "compute_${architecture}\n")
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${architecture}-real)
      if(architecture LESS_EQUAL 100)
        set(newest ${architecture})
      endif()
    endif()
  endforeach()
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^${newest}-real$" ${newest})
endif()
if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
enable_language(CUDA)
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc has it

# Kernels see neither fmt nor other libraries. <device/...> is that of the GPU here; the tests put their emulation there.
# Relaxed constexpr: constexpr functions of the host run on the device as well.
file(GLOB kernel_sources CONFIGURE_DEPENDS kernels/cuda/*.cu)
add_library(maniple_cuda_kernels OBJECT ${kernel_sources})
target_include_directories(maniple_cuda_kernels PRIVATE ${PROJECT_BINARY_DIR}/include/kernels ${PROJECT_SOURCE_DIR}/kernels/cuda)
# Line numbers cost nothing at run time: compute-sanitizer names them.
target_compile_options(maniple_cuda_kernels PRIVATE
  --expt-relaxed-constexpr -lineinfo -Xcompiler=-Wall,-Wextra "$<$<BOOL:${MANIPLE_WERROR}>:--Werror=all-warnings;-Xcompiler=-Werror>")
# Compressed for size: without that the kernels of all architectures take up 42 MB instead of 5. Such code needs a driver of CUDA 12.4 or newer.
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
  target_compile_options(maniple_cuda_kernels PRIVATE -compress-mode=size)
endif()
if("${CMAKE_CUDA_ARCHITECTURES}" STREQUAL "90-real;80-virtual")  # a quick build: both from one pass of the compiler
  set_target_properties(maniple_cuda_kernels PROPERTIES CUDA_ARCHITECTURES OFF)
  target_compile_options(maniple_cuda_kernels PRIVATE "SHELL:-gencode arch=compute_80,code=[compute_80,sm_90]")
endif()
set(budget ${PROJECT_SOURCE_DIR}/kernels/cuda/register_budget.txt)
if(MANIPLE_WERROR)  # register counts depend on the nvcc
  set(launcher ${PROJECT_SOURCE_DIR}/kernels/cuda/within_budget.sh ${budget} ${CMAKE_CUDA_COMPILER_LAUNCHER})
  set_target_properties(maniple_cuda_kernels PROPERTIES CUDA_COMPILER_LAUNCHER "${launcher}")
endif()
set_source_files_properties(${kernel_sources} PROPERTIES OBJECT_DEPENDS ${budget})

file(GLOB sources CONFIGURE_DEPENDS kernels/cuda/*.cpp kernels/cuda/device/*.cpp)
target_sources(maniple_kernels PRIVATE ${sources} $<TARGET_OBJECTS:maniple_cuda_kernels>)
target_compile_definitions(maniple_kernels PRIVATE MANIPLE_CUDA=1)
list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
set_source_files_properties(kernels/cuda/cuda_device.cpp PROPERTIES COMPILE_DEFINITIONS MANIPLE_CUDA_ARCHITECTURES="${architectures}")
target_include_directories(maniple_kernels PRIVATE ${PROJECT_SOURCE_DIR}/kernels/cuda)
target_link_libraries(maniple_kernels PRIVATE CUDA::cudart_static)
# The program tries this path first, at run time.
get_target_property(cublaslt CUDA::cublasLt IMPORTED_LOCATION)
cmake_path(REPLACE_FILENAME cublaslt libcublasLt.so.${CUDAToolkit_VERSION_MAJOR})
set_source_files_properties(kernels/cuda/cublaslt.cpp PROPERTIES COMPILE_DEFINITIONS MANIPLE_CUBLASLT="${cublaslt}")
