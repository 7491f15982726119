// Tells the Python loader, which looks for the text in the file, that this library has
// kernels for GPUs.

extern "C" __attribute__((used)) const char largeout_built_for_gpu[] =
    "largeout built with kernels for gpus";
