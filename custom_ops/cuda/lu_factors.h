// Systems of linear equations on the GPU, by the elimination of
// core/linear_algebra/lu_factors.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LU_FACTORS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LU_FACTORS_H_

#include <cstdint>

#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// A system S X = Y: S beside Y, [size, size + width], row-major, on the device.
struct LinearSystem {
  double* data;
  int64_t size;
  int64_t width;  // of Y

  int64_t stride() const { return size + width; }
};

int64_t SolveSystemScratchBytes(int64_t size);

// Y becomes X, S has no meaning then. *smallest_pivot becomes the smallest absolute value of a
// pivot of Gauss's elimination with the largest pivot of each column. It ends at the first that
// is less than min_pivot or NaN, and that is it: then Y has no meaning either. Neither does it
// where there is no equation. smallest_pivot: on the device.
Status SolveSystem(const LinearSystem& system, double min_pivot, void* scratch,
                   double* smallest_pivot, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LU_FACTORS_H_
