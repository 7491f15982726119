# The CUDA launchers, and `cuda_check`, which compares them with core on a GPU.

set(nvcc nvcc)
if(DEFINED ENV{NVCC})
  set(nvcc $ENV{NVCC})
endif()
find_program(LARGEOUT_NVCC ${nvcc})
if(NOT LARGEOUT_NVCC)
  message(FATAL_ERROR "LARGEOUT_CUDA=1 needs '${nvcc}', which is not on the PATH. Install NVIDIA's "
    "CUDA toolkit 12 or 13 (Debian and Ubuntu: apt-get install nvidia-cuda-toolkit), or set the "
    "environment variable NVCC to its compiler, or build without CUDA kernels: LARGEOUT_CUDA=0.")
endif()
set(CMAKE_CUDA_COMPILER ${LARGEOUT_NVCC})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})

if(NOT CMAKE_CUDA_ARCHITECTURES)
  include(${CMAKE_CURRENT_LIST_DIR}/architectures.cmake)
  list(TRANSFORM LARGEOUT_GPU_ARCHITECTURES APPEND "-real" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
  list(GET LARGEOUT_GPU_ARCHITECTURES -1 newest)
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${newest}-virtual)
endif()
enable_language(CUDA)
# The record of compiled architectures in the op library: "75-real,80-real,80-virtual".
set(compiled_for ${CMAKE_CUDA_ARCHITECTURES})
if(CMAKE_CUDA_ARCHITECTURES STREQUAL "native")
  set(compiled_for ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
endif()
string(REPLACE ";" "," LARGEOUT_COMPILED_FOR "${compiled_for}")
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")

file(GLOB launcher_sources CONFIGURE_DEPENDS custom_ops/cuda/*.cu)
file(GLOB cuda_check_sources CONFIGURE_DEPENDS custom_ops/cuda/check/*.cu)
add_library(launchers OBJECT ${launcher_sources})
add_executable(cuda_check EXCLUDE_FROM_ALL ${cuda_check_sources} $<TARGET_OBJECTS:check>
  $<TARGET_OBJECTS:launchers> ${core_objects})
foreach(target launchers cuda_check)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;\
-Xcompiler=-Wall;-Wno-deprecated-gpu-targets;\
$<$<BOOL:${LARGEOUT_CUDA_WERROR}>:-Werror=all-warnings>>")
endforeach()
target_link_libraries(cuda_check PRIVATE CUDA::cudart_static Threads::Threads)
