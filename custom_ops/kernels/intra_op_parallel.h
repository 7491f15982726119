// TensorFlow's intra-op thread pool as the runner that core expects.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_INTRA_OP_PARALLEL_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_INTRA_OP_PARALLEL_H_

#include <functional>

#include "custom_ops/core/parallel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/util/work_sharder.h"

namespace largeout {

inline ParallelFor IntraOpParallel(tensorflow::OpKernelContext* ctx) {
  const auto* threads = ctx->device()->tensorflow_cpu_worker_threads();
  return [threads](int64_t total, int64_t cost_per_unit,
                   const std::function<void(int64_t, int64_t)>& work) {
    FirstException thrown;  // one that left a thread of the pool would end the process
    tensorflow::Shard(
        threads->num_threads, threads->workers, total, cost_per_unit,
        [&](int64_t begin, int64_t end) { thrown.Catch([&] { work(begin, end); }); });
    thrown.Rethrow();
  };
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_INTRA_OP_PARALLEL_H_
