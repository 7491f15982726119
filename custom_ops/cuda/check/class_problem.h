// Inputs for the checks of the passes over all classes, for the CPU and the GPU.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CHECK_CLASS_PROBLEM_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CHECK_CLASS_PROBLEM_H_

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace check {

struct ScanProblem {
  ScanProblem(int64_t batch, int64_t num_classes, int64_t dim, int64_t width,
              const char* name = "")
      : batch(batch), num_classes(num_classes), dim(dim), width(width), name(name) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    for (auto* values : {&embeddings, &bias, &data}) {
      for (float& value : *values) value = normal(random);
    }
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % (num_classes + 1)) - 1;
  }

  ClassMatrix matrix() const { return {embeddings.data(), bias.data(), num_classes, dim}; }
  Features features() const { return {data.data(), batch}; }
  Labels labels() const { return {ids.data(), width}; }

  bool IsBadLabel(int64_t i) const { return ids[i] < -1 || ids[i] >= num_classes; }
  // A copy for the CPU, which does not accept invalid labels.
  ScanProblem WithoutBadLabels() const {
    ScanProblem good = *this;
    for (size_t i = 0; i < ids.size(); ++i) good.ids[i] = IsBadLabel(i) ? -1 : ids[i];
    return good;
  }

  // Rounds to few different values, so that many logits are equal.
  void Coarsen() {
    is_exact = true;
    for (auto* values : {&embeddings, &bias, &data}) {
      for (float& value : *values) value = value > 0.5f ? 1.0f : 0.0f;
    }
  }

  int64_t batch, num_classes, dim, width;
  const char* name;
  bool is_exact = false;  // logits do not depend on the order of their sums
  std::vector<float> embeddings = std::vector<float>(num_classes * dim);
  std::vector<float> bias = std::vector<float>(num_classes);
  std::vector<float> data = std::vector<float>(batch * dim);
  std::vector<int64_t> ids = std::vector<int64_t>(batch * width);
};

// An empty batch, one class, less than a tile, several tiles and a remainder, more shards than
// there are threads to add them, equal logits, repeated labels and invalid labels. More sizes
// if the run is not small.
inline std::vector<ScanProblem> ScanProblems(const Run& run) {
  std::vector<ScanProblem> problems = {
      {0, 3, 4, 2},     {1, 1, 1, 1},     {5, 300, 3, 0},    {3, 1000, 19, 2},
      {17, 257, 8, 9},  {130, 70, 5, 3},  {130, 1025, 4, 3}, {60, 2000, 33, 1},
      {2, 700, 20, 13}, {131, 90, 12, 5}, {33, 300, 4, 4},   {9, 300, 8, 2},
      {16, 600, 36, 3}, {9, 300, 150, 2}, {3, 9001, 2, 1},   {130, 1025, 2, 3}};
  problems.push_back({20, 3000, 3, 10, "equal logits"});
  problems.back().Coarsen();
  problems.push_back({20, 150, 6, 8, "equal labels"});
  for (size_t i = 0; i < problems.back().ids.size(); ++i) problems.back().ids[i] = i % 3;
  problems.push_back({20, 150, 6, 2, "bad labels"});
  problems.back().ids[7] = 150;
  problems.back().ids[8] = -2;
  problems.back().ids[9] = int64_t{1} << 62;
  if (!run.small()) {
    problems.push_back({1030, 5000, 128, 3});
    problems.push_back({33, 100003, 100, 2});
    problems.push_back({1, 1000003, 64, 1});
    problems.push_back({70, 3001, 1024, 20});
  }
  return problems;
}

inline std::string Text(const ScanProblem& in) {
  return std::string(in.name) + (*in.name != '\0' ? " " : "") +
         Sizes({{"batch", in.batch},
                {"classes", in.num_classes},
                {"dim", in.dim},
                {"labels", in.width}});
}

// Offsets at which the arrays of a problem may start. Kernels read four numbers at a time only
// if all rows are aligned for it.
inline std::vector<int64_t> Skips(const ScanProblem& in) {
  return in.dim % 4 == 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0};
}

// A problem in device memory.
struct ScanOnGpu {
  explicit ScanOnGpu(const ScanProblem& in, int64_t skipped = 0)
      : batch(in.batch),
        num_classes(in.num_classes),
        dim(in.dim),
        width(in.width),
        embeddings(in.embeddings, skipped),
        bias(in.bias),
        data(in.data, skipped),
        ids(in.ids) {}

  // For timings: of any size, with repeating numbers that are generated on the device.
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
