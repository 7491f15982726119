// Adam on a whole variable, in one pass over its memory and that of its moments.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_DENSE_ADAM_H_
#define LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_DENSE_ADAM_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/optimizers/dense_adam_simd.h"

namespace largeout {

// Updates `size` numbers.
void UpdateAll(const DenseAdamArguments& arguments, int64_t size, const ParallelFor& parallel);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_DENSE_ADAM_H_
