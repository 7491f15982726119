#include "custom_ops/core/optimizers/dense_adam.h"

#include <algorithm>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/base/simd_level.h"

namespace largeout {

void UpdateAll(const DenseAdamArguments& arguments, int64_t size, const ParallelFor& parallel) {
  constexpr int64_t kBlock = 4096;
  parallel(CeilDiv(size, kBlock), 4 * kBlock, [&](int64_t begin, int64_t end) {
    LARGEOUT_SIMD_DISPATCH(DenseAdam, arguments, begin * kBlock, std::min(size, end * kBlock));
  });
}

}  // namespace largeout
