// TensorFlow's intra-op thread pool as the runner that core expects.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_INTRA_OP_PARALLEL_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_INTRA_OP_PARALLEL_H_

#include <algorithm>
#include <functional>
#include <utility>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/base/shared_work.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/util/work_sharder.h"

namespace largeout {

// Like tensorflow::Shard. But Shard waits until each of its threads has woken up, which takes
// most of the time of an op if a core is busy or the loop is short.
inline ParallelFor IntraOpParallel(tensorflow::OpKernelContext* ctx) {
  const auto* threads = ctx->device()->tensorflow_cpu_worker_threads();
  return [threads](int64_t total, int64_t cost_per_unit,
                   const std::function<void(int64_t, int64_t)>& work) {
    const int64_t num_threads =
        std::min(threads->num_threads, tensorflow::GetPerThreadMaxParallelism());
    const WorkShares shares = SharesOf(total, cost_per_unit, num_threads);
    if (shares.num_helpers == 0) return SerialFor(total, cost_per_unit, work);
    const auto schedule = [threads](std::function<void()> closure) {
      threads->workers->Schedule(std::move(closure));
    };
    ShareWork(total, shares.block, shares.num_helpers, schedule, work);
  };
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_INTRA_OP_PARALLEL_H_
