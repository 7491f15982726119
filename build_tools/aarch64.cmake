# Cross-compiles for 64-bit ARM with the cross compiler of Debian and Ubuntu.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
find_program(CMAKE_CXX_COMPILER NAMES aarch64-linux-gnu-g++-12 aarch64-linux-gnu-g++)
if(NOT CMAKE_CXX_COMPILER)
  message(FATAL_ERROR "A build for 64-bit ARM needs aarch64-linux-gnu-g++, which is not on the "
    "PATH, and `make test-arm` needs qemu-aarch64. Install both (Debian and Ubuntu): "
    "apt-get install g++-12-aarch64-linux-gnu qemu-user")
endif()
# The op library cannot be loaded here, so the linker checks that every symbol exists.
set(CMAKE_MODULE_LINKER_FLAGS_INIT -Wl,-z,defs)
