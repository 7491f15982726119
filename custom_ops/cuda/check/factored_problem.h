// Inputs for the checks of factored output layers, for the CPU and the GPU.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CHECK_FACTORED_PROBLEM_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CHECK_FACTORED_PROBLEM_H_

#include <cstdint>
#include <string>

#include "custom_ops/core/factored_output/factored_output_testing.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/factored_output.h"

namespace largeout {
namespace cuda {
namespace check {

struct FactoredSize {
  int64_t num_classes, width, batch, num_targets;
};

// Size 1, sizes below and above those of blocks and squares, no targets, an empty batch.
inline constexpr FactoredSize kFactoredSizes[] = {
    {1, 1, 1, 1},   {1, 5, 3, 2},    {3, 20, 2, 1},   {40, 6, 17, 3},
    {30, 33, 7, 0}, {90, 70, 50, 4}, {2, 40, 150, 2}, {9, 7, 0, 3}};

// A layer and a batch, with copies on the GPU.
template <class Number>
struct FactoredProblem {
  explicit FactoredProblem(const FactoredSize& size)
      : on_cpu(size.num_classes, size.width, size.batch, size.num_targets),
        vectors(on_cpu.vectors),
        mixing(on_cpu.mixing),
        inverse(on_cpu.inverse),
        offset(on_cpu.offset),
        total(on_cpu.total),
        gram(on_cpu.gram),
        log(on_cpu.log),
        seen(on_cpu.seen),
        features(on_cpu.features),
        by_q(on_cpu.by_q),
        by_s(on_cpu.by_s),
        by_a(on_cpu.by_a),
        q(size.batch),
        s(size.batch),
        a(size.batch * size.num_targets),
        gram_features(size.batch * size.width),
        mixed_features(size.batch * size.width),
        by_features(size.batch * size.width),
        rows(size.batch * size.num_targets * size.width),
        ids(on_cpu.ids) {}

  FactoredState<Number> state() const {
    return {vectors.data(),     mixing.data(), inverse.data(),
            offset.data(),      total.data(),  gram.data(),
            on_cpu.num_classes, on_cpu.width,  {log.data(), on_cpu.kCapacity, on_cpu.width},
            seen.data()};
  }
  FactoredBatch batch() const {
    return {features.data(), ids.data(), on_cpu.batch, on_cpu.num_targets};
  }
  FactoredSlopes slopes() const {
    return {by_q.data(), by_s.data(), by_a.data(), gram_features.data(), mixed_features.data()};
  }
  // Copies numbers that a test has changed to the GPU.
  void CopyInput() {
    by_q.Set(on_cpu.by_q);
    by_s.Set(on_cpu.by_s);
    by_a.Set(on_cpu.by_a);
    offset.Set(on_cpu.offset);
    ids.Set(on_cpu.ids);
  }

  Status Score(Stream stream) const {
    return ScoreFactoredOutput(
        state(), batch(),
        {q.data(), s.data(), a.data(), gram_features.data(), mixed_features.data()},
        rows.data(), stream);
  }

  std::string Text(const std::string& what) const {
    return Sizes({{"classes", on_cpu.num_classes},
                  {"width", on_cpu.width},
                  {"batch", on_cpu.batch},
                  {"targets", on_cpu.num_targets}}) +
           (sizeof(Number) == 4 ? " float " : " double ") + what;
  }

  testing::FactoredExample<Number> on_cpu;
  DeviceArray<Number> vectors;
  DeviceArray<double> mixing, inverse, offset, total, gram, log;
  DeviceArray<uint32_t> seen;
  DeviceArray<double> features, by_q, by_s, by_a, q, s, a, gram_features, mixed_features,
      by_features, rows;
  DeviceArray<int64_t> ids;
};

}  // namespace check
}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CHECK_FACTORED_PROBLEM_H_
