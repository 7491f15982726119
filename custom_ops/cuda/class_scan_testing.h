// Problems for the tests of the passes over all classes.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_TESTING_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_TESTING_H_

#include <cstdint>
#include <random>
#include <vector>

#include "custom_ops/core/class_scan_types.h"

namespace largeout {
namespace cuda {

struct ScanProblem {
  ScanProblem(int64_t batch, int64_t num_classes, int64_t dim, int64_t width)
      : batch(batch), num_classes(num_classes), dim(dim), width(width) {
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

  // Few different logits, so that many are equal.
  void Coarsen() {
    is_coarse = true;
    for (auto* values : {&embeddings, &bias, &data}) {
      for (float& value : *values) value = value > 0.5f ? 1.0f : 0.0f;
    }
  }

  int64_t batch, num_classes, dim, width;
  bool is_coarse = false;
  std::vector<float> embeddings = std::vector<float>(num_classes * dim);
  std::vector<float> bias = std::vector<float>(num_classes);
  std::vector<float> data = std::vector<float>(batch * dim);
  std::vector<int64_t> ids = std::vector<int64_t>(batch * width);
};

// Nothing, one, less than a tile, some tiles and a rest, shards.
inline std::vector<ScanProblem> ScanProblems() {
  return {{0, 3, 4, 2},     {1, 1, 1, 1},     {5, 300, 3, 0},    {3, 1000, 19, 2},
          {17, 257, 8, 9},  {130, 70, 5, 3},  {130, 1025, 2, 3}, {60, 2000, 33, 1},
          {2, 700, 20, 13}, {131, 90, 12, 5}, {33, 300, 4, 4},   {9, 300, 8, 2},
          {16, 600, 36, 3}};
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_TESTING_H_
