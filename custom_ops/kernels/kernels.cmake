# The op library: core, its shims for TensorFlow and, with LARGEOUT_CUDA, the CUDA launchers.

if(NOT LARGEOUT_TENSORFLOW_VERSION)
  message(FATAL_ERROR "LARGEOUT_TENSORFLOW is ${LARGEOUT_TENSORFLOW}, and "
    "LARGEOUT_TENSORFLOW_VERSION is empty. Set it to the version of that package.")
endif()

# The flags of tf.sysconfig.get_compile_flags() and get_link_flags().
add_library(tensorflow INTERFACE)
target_compile_options(tensorflow INTERFACE
  -Wno-deprecated-declarations -Wno-interference-size
  # With these checks g++ refuses comparisons with nullptr in constant expressions of
  # TensorFlow's headers; AddressSanitizer finds null pointers too.
  $<$<BOOL:${LARGEOUT_SANITIZE}>:-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute>)
target_compile_definitions(tensorflow INTERFACE
  _GLIBCXX_USE_CXX11_ABI=1 EIGEN_MAX_ALIGN_BYTES=64
  LARGEOUT_TENSORFLOW_VERSION=${LARGEOUT_TENSORFLOW_VERSION})
target_include_directories(tensorflow INTERFACE ${LARGEOUT_TENSORFLOW}/include)
target_link_options(tensorflow INTERFACE -L${LARGEOUT_TENSORFLOW})
target_link_libraries(tensorflow INTERFACE -l:libtensorflow_framework.so.2)

file(GLOB kernel_sources CONFIGURE_DEPENDS custom_ops/kernels/*.cc)
file(GLOB op_sources CONFIGURE_DEPENDS custom_ops/ops/*.cc)
set(cpu_kernel_sources ${kernel_sources})
list(FILTER cpu_kernel_sources EXCLUDE REGEX "_gpu\\.cc$")

# Adds an object library that is compiled as one file.
function(add_unity_library name)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  target_link_libraries(${name} PRIVATE tensorflow)
endfunction()

# Adds a library that Python loads.
function(add_python_library name)
  add_library(${name} MODULE ${ARGN})
  set_target_properties(${name} PROPERTIES PREFIX "" OUTPUT_NAME _largeout_ops)
  target_link_libraries(${name} PRIVATE tensorflow)
endfunction()

add_unity_library(ops ${op_sources})
if(LARGEOUT_CUDA)
  add_unity_library(kernels ${kernel_sources})
  target_compile_definitions(kernels PRIVATE
    LARGEOUT_GPU_ARCHITECTURES="${LARGEOUT_COMPILED_FOR}"
    LARGEOUT_CUDA_VERSION="${CMAKE_CUDA_COMPILER_VERSION}")
else()
  add_unity_library(kernels ${cpu_kernel_sources})
endif()
add_python_library(op_library ${core_objects} $<TARGET_OBJECTS:kernels> $<TARGET_OBJECTS:ops>)
if(LARGEOUT_CUDA)
  target_sources(op_library PRIVATE $<TARGET_OBJECTS:launchers>)
  target_link_libraries(op_library PRIVATE CUDA::cudart_static)
endif()

# A program that runs SavedModels as TensorFlow Serving does, for tests/serving, which are not in
# the sdist. Not optimized: it compiles in half the time.
if(EXISTS ${CMAKE_SOURCE_DIR}/tests/serving/host.cc)
  add_executable(serving_host EXCLUDE_FROM_ALL tests/serving/host.cc)
  target_link_libraries(serving_host PRIVATE tensorflow -l:libtensorflow_cc.so.2)
  target_compile_options(serving_host PRIVATE -O0)
  # Without --no-as-needed the linker drops the library that registers sessions.
  target_link_options(serving_host PRIVATE -Wl,--no-as-needed -Wl,-rpath,${LARGEOUT_TENSORFLOW})
endif()
