// Systems of linear equations on the GPU, solved by the same elimination as in
// core/linear_algebra/lu_factors.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LU_FACTORS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LU_FACTORS_H_

#include <cstdint>

#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// A system S X = Y: S next to Y, [size, size + width], row-major, on the device.
struct LinearSystem {
  double* data;
  int64_t size;
  int64_t width;  // number of columns of Y

  int64_t stride() const { return size + width; }
};

int64_t SolveSystemScratchBytes(int64_t size);

// Replaces Y by X, and overwrites S. Uses Gaussian elimination with partial pivoting.
// *smallest_pivot, on the device, becomes the smallest absolute value of a pivot. The
// elimination stops at the first pivot that is less than min_pivot or NaN: *smallest_pivot is
// then that pivot, and Y is undefined. Without equations, *smallest_pivot is undefined.
Status SolveSystem(const LinearSystem& system, double min_pivot, void* scratch,
                   double* smallest_pivot, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LU_FACTORS_H_
