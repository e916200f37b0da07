# A toolchain file: compiles for aarch64 with Debian's g++-aarch64-linux-gnu. Objects and static libraries need nothing else. A program
# needs the aarch64 libraries, through CMAKE_PREFIX_PATH.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
