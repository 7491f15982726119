# Sets LARGEOUT_GPU_ARCHITECTURES to the supported compute capabilities that LARGEOUT_NVCC can
# compile for.

# Machine code is compiled for V100 (CUDA 12 only) to H100. Later GPUs translate the PTX of the
# newest compute capability when they load the library.
set(oldest_architecture 70)
set(newest_architecture 90)

execute_process(COMMAND ${LARGEOUT_NVCC} --list-gpu-arch OUTPUT_VARIABLE offered)
string(REGEX MATCHALL "[0-9]+" offered "${offered}")
list(SORT offered COMPARE NATURAL)
foreach(architecture IN LISTS offered)
  if(architecture GREATER_EQUAL oldest_architecture
      AND architecture LESS_EQUAL newest_architecture)
    list(APPEND LARGEOUT_GPU_ARCHITECTURES ${architecture})
  endif()
endforeach()
if(NOT LARGEOUT_GPU_ARCHITECTURES)
  message(FATAL_ERROR "${LARGEOUT_NVCC} compiles for ${offered}; tf_largeout needs one of "
    "${oldest_architecture} to ${newest_architecture}. Set the environment variable NVCC to "
    "the compiler of CUDA 12 or 13.")
endif()
