// Problems of the checks of the passes over all classes, on both sides.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CHECK_CLASS_PROBLEM_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CHECK_CLASS_PROBLEM_H_

#include <algorithm>
#include <string>
#include <vector>

#include "custom_ops/core/class_scan_types.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/class_scan_testing.h"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace check {

// Those of the tests, and more where the GPU may take its time.
inline std::vector<ScanProblem> ScanProblems(const Run& run) {
  std::vector<ScanProblem> problems = cuda::ScanProblems();
  problems.push_back({20, 700, 3, 10});
  problems.back().Coarsen();
  if (!run.small()) {
    problems.push_back({1030, 5000, 128, 3});
    problems.push_back({33, 100003, 100, 2});
    problems.push_back({1, 1000003, 64, 1});
    problems.push_back({70, 3001, 1024, 20});
  }
  return problems;
}

inline std::string Text(const ScanProblem& in) {
  return Sizes({{"batch", in.batch},
                {"classes", in.num_classes},
                {"dim", in.dim},
                {"labels", in.width}});
}

// A problem in device memory.
struct ScanOnGpu {
  explicit ScanOnGpu(const ScanProblem& in)
      : batch(in.batch),
        num_classes(in.num_classes),
        dim(in.dim),
        width(in.width),
        embeddings(in.embeddings),
        bias(in.bias),
        data(in.data),
        ids(in.ids) {}

  // For times: as large as may be, of numbers that repeat, made on the device.
  ScanOnGpu(int64_t batch, int64_t num_classes, int64_t dim)
      : batch(batch),
        num_classes(num_classes),
        dim(dim),
        width(1),
        embeddings(num_classes * dim),
        bias(num_classes),
        data(batch * dim),
        ids(std::vector<int64_t>(batch, num_classes / 2)) {
    const ScanProblem block(4099, 1021, 128, 0);
    const DeviceArray<float> random(block.data);
    for (const auto* array : {&embeddings, &bias, &data}) Repeat(random, *array);
  }

  ClassMatrix matrix() const { return {embeddings.data(), bias.data(), num_classes, dim}; }
  Features features() const { return {data.data(), batch}; }
  Labels labels() const { return {ids.data(), width}; }

  std::string text() const {
    return Sizes({{"batch", batch}, {"classes", num_classes}, {"dim", dim}});
  }
  double matrix_bytes() const { return 4.0 * static_cast<double>(num_classes * (dim + 1)); }
  double product_flops() const {
    return 2.0 * static_cast<double>(batch) * static_cast<double>(num_classes * dim);
  }

  static void Repeat(const DeviceArray<float>& from, const DeviceArray<float>& to) {
    for (int64_t at = 0; at < to.size(); at += from.size()) {
      const int64_t size = std::min(from.size(), to.size() - at);
      CopyBytes(from.data(), size * 4, to.data() + at, nullptr);
    }
  }

  const int64_t batch, num_classes, dim, width;
  const DeviceArray<float> embeddings, bias, data;
  const DeviceArray<int64_t> ids;
};

}  // namespace check
}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CHECK_CLASS_PROBLEM_H_
