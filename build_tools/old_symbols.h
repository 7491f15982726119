// Makes wheels compatible with old versions of glibc and libstdc++ (manylinux_2_27, g++ 8).
// Every source file of a wheel includes it first (-include). Without it the linker would choose
// the newest version of each symbol, and older systems could not load the library.

#ifndef LARGEOUT_BUILD_TOOLS_OLD_SYMBOLS_H_
#define LARGEOUT_BUILD_TOOLS_OLD_SYMBOLS_H_

#if defined(__x86_64__)
#define LARGEOUT_FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define LARGEOUT_FIRST_GLIBC "GLIBC_2.17"
#else
#error "Wheels are built for x86_64 and aarch64."
#endif

// The newer versions, of glibc 2.29, do not set errno. They compute the same numbers.
__asm__(".symver exp, exp@" LARGEOUT_FIRST_GLIBC);
__asm__(".symver exp2, exp2@" LARGEOUT_FIRST_GLIBC);
__asm__(".symver log, log@" LARGEOUT_FIRST_GLIBC);
__asm__(".symver log2, log2@" LARGEOUT_FIRST_GLIBC);
__asm__(".symver pow, pow@" LARGEOUT_FIRST_GLIBC);

// std::condition_variable::wait has a second version since g++ 12.
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE, "
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

// std::__throw_bad_array_new_length is new in g++ 11. An older function throws the same error.
__asm__(
    ".symver _ZSt28__throw_bad_array_new_lengthv, "
    "__cxa_throw_bad_array_new_length@CXXABI_1.3.8");

// Whether the process has one thread (glibc 2.32). With TensorFlow it has several.
extern "C" {
__attribute__((weak, visibility("hidden"))) char __libc_single_threaded = 0;
}

#endif  // LARGEOUT_BUILD_TOOLS_OLD_SYMBOLS_H_
