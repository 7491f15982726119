// The thread and block bodies of factored_output_step.cu, except products of matrices. The
// formulas are those of core/factored_output/factored_output_update.cc.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_STEP_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_STEP_BODY_H_

#include <cstdint>

#include "custom_ops/core/base/finite.h"
#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/factored_output_body.h"
#include "custom_ops/cuda/row_merge.h"

namespace largeout {
namespace cuda {

// products = A'V, target_sums = A'1, and the terms of the gradient that are sums of vectors.
template <class Number>
struct GradientTermsBody {
  FactoredState<Number> state;
  FactoredBatch batch;
  FactoredSlopes slopes;
  const double* rows;  // rows of V of the targets, after all folds
  double* target_sums;
  double* products;
  double* by_features;

  // i: of [batch, width].
  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const int64_t j = i / state.width, k = i % state.width;
    double product = 0, sum = 0;
    for (int64_t t = j * batch.num_targets; t < (j + 1) * batch.num_targets; ++t) {
      if (!IsClass(batch.ids[t], state.num_classes)) continue;
      product += slopes.by_a[t] * rows[t * state.width + k];
      sum += slopes.by_a[t];
    }
    products[i] = product;
    if (k == 0) target_sums[j] = sum;
    by_features[i] = 2 * slopes.by_q[j] * slopes.gram_features[i] +
                     slopes.by_s[j] * state.total[k] + sum * state.offset[k];
  }
};

// to [rows, dim] = the first columns of from [rows, width].
struct FirstColumnsBody {
  const double* from;
  int64_t width;
  int64_t dim;
  double* to;

  LARGEOUT_DEVICE void operator()(int64_t i) const { to[i] = from[i / dim * width + i % dim]; }
};

// scales = 2 eta gamma.
struct ScalesBody {
  const double* by_q;
  const double* learning_rate;
  double* scales;

  LARGEOUT_DEVICE void operator()(int64_t j) const { scales[j] = 2 * *learning_rate * by_q[j]; }
};

// H'H becomes I - 2 eta H'H Gamma.
struct SystemBody {
  const double* scales;
  int64_t batch;
  int64_t stride;
  double* system;

  // i: of [batch, batch].
  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / batch, column = i % batch;
    double* const number = system + row * stride + column;
    *number = (row == column) - *number * scales[column];
  }
};

// rest = (W'E - Q H Gamma)', negative = -eta (W'E)'.
struct GramTermsBody {
  FactoredSlopes slopes;
  const double* learning_rate;
  int64_t width;
  const double* by_features;
  double* rest;
  double* negative;

  // i: of [batch, width].
  LARGEOUT_DEVICE void operator()(int64_t i) const {
    rest[i] = by_features[i] - slopes.by_q[i / width] * slopes.gram_features[i];
    negative[i] = -*learning_rate * by_features[i];
  }
};

// Finds the positions of the ids of a batch among the merged ids.
struct PlacesBody {
  const int32_t* positions;
  int32_t* places;

  LARGEOUT_DEVICE void operator()(int64_t place) const {
    places[positions[place]] = static_cast<int32_t>(place);
  }
};

// squares = eta^2 / 2 times E'E. A block computes one row.
struct SquaresBody {
  FactoredBatch batch;
  FactoredSlopes slopes;
  const double* learning_rate;
  int64_t num_classes;
  const double* target_sums;
  const double* half;  // [batch, batch]: rest times H
  MergedRows merged;
  const int32_t* places;
  double* squares;

  static constexpr int kThreads = 128;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char*) const {
    const double factor = *learning_rate * *learning_rate / 2;
    for (int64_t i = block.index(); i < batch.batch; i += block.num_blocks()) {
      block.ForEachThread([&](int thread) {
        for (int64_t j = thread; j < batch.batch; j += kThreads) {
          squares[i * batch.batch + j] = factor * (Half(i, j) + Half(j, i));
        }
      });
      for (int64_t t = i * batch.num_targets; t < (i + 1) * batch.num_targets; ++t) {
        if (!IsClass(batch.ids[t], num_classes)) continue;
        block.ForEachThread([&](int thread) { AddTarget(i, t, factor, thread); });
      }
    }
  }

 private:
  // F of factored_output_update.cc, without A'A.
  LARGEOUT_DEVICE double Half(int64_t i, int64_t j) const {
    const double rest = target_sums[i] + 0.5 * num_classes * slopes.by_s[i];
    return 2 * half[i * batch.batch + j] * slopes.by_q[j] + rest * slopes.by_s[j];
  }

  // Adds the products of target t of example i with the equal targets of all examples. A thread
  // adds the slopes of an example, which are consecutive.
  LARGEOUT_DEVICE void AddTarget(int64_t i, int64_t t, double factor, int thread) const {
    const int32_t segment = merged.started[places[t]] - 1;
    const int32_t begin = merged.offsets[segment], end = merged.offsets[segment + 1];
    for (int32_t place = begin + thread; place < end; place += kThreads) {
      const int64_t example = ExampleAt(place);
      if (place > begin && ExampleAt(place - 1) == example) continue;
      double sum = 0;
      for (int32_t p = place; p < end && ExampleAt(p) == example; ++p) {
        sum += slopes.by_a[merged.positions[p]];
      }
      squares[i * batch.batch + example] += factor * slopes.by_a[t] * sum;
    }
  }

  LARGEOUT_DEVICE int64_t ExampleAt(int32_t place) const {
    return merged.positions[place] / batch.num_targets;
  }
};

// factors [2, batch]: converts omega'H and w_bar'H to the factors of H in the updates of omega
// and w_bar.
struct FactorsBody {
  FactoredSlopes slopes;
  const double* learning_rate;
  const double* target_sums;
  int64_t batch;
  int64_t num_classes;
  double* factors;

  LARGEOUT_DEVICE void operator()(int64_t j) const {
    const double twice = 2 * slopes.by_q[j], by_s = slopes.by_s[j];
    double &offset = factors[j], &total = factors[batch + j];
    offset = -*learning_rate * (twice * offset + by_s);
    total = -*learning_rate * (twice * total + num_classes * by_s + target_sums[j]);
  }
};

// vectors: the new rows of V of the classes of the segments.
template <class Number>
struct NewVectorsBody {
  const double* rows;  // rows of V of the targets, after all folds
  int64_t width;
  const double* by_a;
  const double* learning_rate;
  const double* solved;  // T [batch, stride]
  int64_t stride;
  int64_t num_targets;
  MergedRows merged;
  Number* vectors;
  uint32_t* not_finite;

  // i: of [num_ids, width].
  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const int64_t segment = i / width, k = i % width;
    if (segment >= *merged.num_segments) return;
    double sum = rows[merged.positions[merged.offsets[segment]] * width + k];
    for (int32_t p = merged.offsets[segment]; p < merged.offsets[segment + 1]; ++p) {
      const int32_t position = merged.positions[p];
      sum -= *learning_rate * by_a[position] * solved[position / num_targets * stride + k];
    }
    vectors[i] = static_cast<Number>(sum);
    if (!IsFinite(vectors[i])) SetBits(not_finite, 1);
  }
};

struct FlagNotFiniteBody {
  const double* numbers;
  int64_t lower_width;  // width of a matrix of which only [r, j] with j <= r are checked; 0:
                        // all are checked
  uint32_t bit;
  uint32_t* not_finite;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    if (lower_width > 0 && i % lower_width > i / lower_width) return;
    if (!IsFinite(numbers[i])) SetBits(not_finite, bit);
  }
};

template <class Number>
struct WriteVectorsBody {
  MergedRows merged;
  const Number* from;
  FactoredState<Number> state;

  // i: of [num_ids, width].
  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const int64_t segment = i / state.width, k = i % state.width;
    if (segment >= *merged.num_segments) return;
    const int64_t id = merged.ids[segment];
    state.vectors[id * state.width + k] = from[i];
    if (k == 0) state.seen[id] = static_cast<uint32_t>(state.folds.count());
  }
};

// Computes the numbers by which the host decides whether to fold. Runs on one block.
struct FoldReportBody {
  const double* mixing;
  const double* inverse;
  FactoredFolds folds;
  FactoredReport* report;

  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 2 * kThreads * sizeof(double);

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    auto* const sums = reinterpret_cast<double*>(shared);
    block.ForEachThread([&](int thread) {
      double of_mixing = 0, of_inverse = 0;
      for (int64_t i = thread; i < folds.width * folds.width; i += kThreads) {
        of_mixing += mixing[i] * mixing[i];
        of_inverse += inverse[i] * inverse[i];
      }
      sums[thread] = of_mixing;
      sums[kThreads + thread] = of_inverse;
    });
    for (int half = kThreads / 2; half > 0; half /= 2) {
      block.ForEachThread([&](int thread) {
        if (thread >= half) return;
        sums[thread] += sums[thread + half];
        sums[kThreads + thread] += sums[kThreads + thread + half];
      });
    }
    block.ForEachThread([&](int thread) {
      if (thread != 0) return;
      report->mixing_squares = sums[0];
      report->inverse_squares = sums[kThreads];
      report->num_folds = folds.count();
    });
  }
};

// to = the symmetric matrix whose elements [r, j] with j <= r are in `lower`.
struct WriteGramBody {
  const double* lower;
  int64_t width;
  double* to;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / width, column = i % width;
    to[i] = row >= column ? lower[i] : lower[column * width + row];
  }
};

// Runs on one thread.
struct CountStepBody {
  int64_t* steps;
  LARGEOUT_DEVICE void operator()(int64_t) const { ++*steps; }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_STEP_BODY_H_
