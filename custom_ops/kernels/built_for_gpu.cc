// Tells the Python loader, which searches the file for this text, that the library has GPU
// kernels, for which GPUs, and which CUDA toolkit compiled them.

#ifndef LARGEOUT_GPU_ARCHITECTURES
#error "Compile with -DLARGEOUT_GPU_ARCHITECTURES='\"80-real,90-real,90-virtual\"'."
#endif
#ifndef LARGEOUT_CUDA_VERSION
#error "Compile with -DLARGEOUT_CUDA_VERSION='\"13.0.88\"' (the version of nvcc)."
#endif

extern "C" __attribute__((used)) const char largeout_built_for_gpu[] =
    "largeout built with kernels for gpus " LARGEOUT_GPU_ARCHITECTURES
    " by cuda " LARGEOUT_CUDA_VERSION;
