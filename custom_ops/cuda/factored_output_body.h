// The thread and block bodies of factored_output.cu: they read and check the input, and compute
// the scores.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_BODY_H_

#include <cstdint>

#include "custom_ops/core/base/finite.h"
#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/factored_output.h"

namespace largeout {
namespace cuda {

LARGEOUT_DEVICE inline bool IsClass(int64_t id, int64_t num_classes) {
  return 0 <= id && id < num_classes;
}

template <class Number>
struct ReadFeaturesBody {
  const Number* features;
  int64_t dim;
  int64_t width;
  double* wide;
  uint32_t* is_unfit;

  // i: of [batch, width].
  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / width, column = i % width;
    wide[i] = column < dim ? features[row * dim + column] : 1;
    if (!IsFinite(wide[i])) SetBits(is_unfit, 1);
  }
};

struct CheckIdsBody {
  const int64_t* ids;
  int64_t num_classes;
  uint32_t* is_unfit;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    if (ids[i] != -1 && !IsClass(ids[i], num_classes)) SetBits(is_unfit, 1);
  }
};

struct CheckFiniteBody {
  const double* numbers;
  uint32_t* is_unfit;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    if (!IsFinite(numbers[i])) SetBits(is_unfit, 1);
  }
};

// Runs on one thread.
struct CheckScalarsBody {
  const double* learning_rate;
  const int64_t* version;
  const int64_t* steps;
  FactoredReport* report;

  LARGEOUT_DEVICE void operator()(int64_t) const {
    report->learning_rate = *learning_rate;
    report->steps = *steps;
    const bool is_fit = *version == *steps && IsFinite(*learning_rate) && *learning_rate >= 0;
    if (!is_fit) SetBits(&report->is_unfit, 1);
  }
};

// The scores q, s and a of an example. A block sums each over the width.
template <class Number>
struct ScoresBody {
  FactoredState<Number> state;
  FactoredBatch batch;
  FactoredScores scores;
  const double* rows;  // rows of V of the targets, after all folds

  static constexpr int kThreads = 64;
  static constexpr int kSharedBytes = kThreads * sizeof(double);

  LARGEOUT_HOST_DEVICE int64_t size() const { return batch.batch * (batch.num_targets + 2); }

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    auto* const sums = reinterpret_cast<double*>(shared);
    for (int64_t i = block.index(); i < size(); i += block.num_blocks()) {
      const int64_t example = i / (batch.num_targets + 2);
      const int64_t target = i % (batch.num_targets + 2) - 2;
      block.ForEachThread([&](int thread) { sums[thread] = Part(example, target, thread); });
      for (int half = kThreads / 2; half > 0; half /= 2) {
        block.ForEachThread([&](int thread) {
          if (thread < half) sums[thread] += sums[thread + half];
        });
      }
      block.ForEachThread([&](int thread) {
        if (thread == 0) *Place(example, target) = sums[0];
      });
    }
  }

 private:
  // Target -2 stands for q, and -1 for s.
  LARGEOUT_DEVICE double* Place(int64_t example, int64_t target) const {
    if (target == -2) return scores.q + example;
    if (target == -1) return scores.s + example;
    return scores.a + example * batch.num_targets + target;
  }

  // The part of the sum that a thread computes.
  LARGEOUT_DEVICE double Part(int64_t example, int64_t target, int thread) const {
    const double* const features = batch.features + example * state.width;
    if (target == -2)
      return Dot(features, scores.gram_features + example * state.width, thread);
    if (target == -1) return Dot(features, state.total, thread);
    const int64_t place = example * batch.num_targets + target;
    if (!IsClass(batch.ids[place], state.num_classes)) return 0;
    return Dot(rows + place * state.width, scores.mixed_features + example * state.width,
               thread) +
           Dot(features, state.offset, thread);
  }

  LARGEOUT_DEVICE double Dot(const double* a, const double* b, int thread) const {
    double sum = 0;
    for (int64_t k = thread; k < state.width; k += kThreads) sum += a[k] * b[k];
    return sum;
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_BODY_H_
