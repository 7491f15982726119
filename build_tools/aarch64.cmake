# Cross-compiles for 64-bit ARM with the g++ of Debian and Ubuntu (`make test-arm`).

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
find_program(CMAKE_CXX_COMPILER NAMES aarch64-linux-gnu-g++-12 aarch64-linux-gnu-g++ REQUIRED)
# Nothing loads the op library here, so the linker checks that every symbol exists.
set(CMAKE_MODULE_LINKER_FLAGS_INIT -Wl,-z,defs)
