// The GPU that the check runs on, and its measured peaks.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CHECK_PEAKS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CHECK_PEAKS_H_

#include <string>

#include "custom_ops/cuda/check/check.h"

namespace largeout {
namespace cuda {
namespace check {

// Describes the current GPU. Returns the reason if there is none, else an empty string.
std::string FindDevice(Device* device);

// Measures a copy of 1 GiB (less on a small GPU) within device memory, and a loop of
// multiply-adds on registers.
void MeasurePeaks(Stream stream, Device* device);

}  // namespace check
}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CHECK_PEAKS_H_
