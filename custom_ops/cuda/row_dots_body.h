// The kernels of row_dots.cu. Their results do not depend on the number of blocks.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_BODY_H_

#include <cstdint>

#include "custom_ops/core/rows/row_dots.h"
#include "custom_ops/cuda/block_tools.h"

namespace largeout {
namespace cuda {

inline constexpr int kRowDotThreads = 256;
inline constexpr int kDotLanes = 8;  // threads that compute a dot product together
inline constexpr int kDotsPerBlock = kRowDotThreads / kDotLanes;
inline constexpr int kGatherLanes = 32;  // threads that copy a row together
inline constexpr int kGathersPerBlock = kRowDotThreads / kGatherLanes;

LARGEOUT_DEVICE inline bool IsClass(const ClassMatrix& matrix, int64_t id) {
  return static_cast<uint64_t>(id) < static_cast<uint64_t>(matrix.num_classes);
}

// The part of a dot product that one of these threads computes.
template <bool kByFours>
LARGEOUT_DEVICE float LaneDot(const float* row, const float* feature, int64_t dim, int lane) {
  float sum = 0;
  if constexpr (kByFours) {
    for (int64_t k = 4 * lane; k < dim; k += 4 * kDotLanes) {
      const FourFloats a = LoadFour(row + k), b = LoadFour(feature + k);
      for (int j = 0; j < 4; ++j) sum = MultiplyAdd(a.at[j], b.at[j], sum);
    }
  } else {
    for (int64_t k = lane; k < dim; k += kDotLanes) {
      sum = MultiplyAdd(row[k], feature[k], sum);
    }
  }
  return sum;
}

// logits[i], kDotsPerBlock at a time. Shared memory: kRowDotThreads floats.
template <bool kByFours>
struct RowDotsBody {
  ClassMatrix matrix;
  const float* features;
  OwnClasses own;
  float* logits;

  static constexpr int kSharedBytes = kRowDotThreads * sizeof(float);

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    float* const sums = reinterpret_cast<float*>(shared);
    const int64_t total = own.size(), step = block.num_blocks() * kDotsPerBlock;
    for (int64_t first = block.index() * kDotsPerBlock; first < total; first += step) {
      block.ForEachThread([&](int thread) {
        const int64_t i = first + thread / kDotLanes;
        if (i < total) sums[thread] = Partial(i, thread % kDotLanes);
      });
      block.ForEachThread([&](int thread) {
        const int64_t i = first + thread;
        if (thread < kDotsPerBlock && i < total) {
          logits[i] = Logit(own.ids[i], sums + thread * kDotLanes);
        }
      });
    }
  }

 private:
  LARGEOUT_DEVICE float Partial(int64_t i, int lane) const {
    if (!IsClass(matrix, own.ids[i])) return 0;
    const int64_t dim = matrix.dim;
    return LaneDot<kByFours>(matrix.embeddings + own.ids[i] * dim,
                             features + i / own.per_row * dim, dim, lane);
  }

  LARGEOUT_DEVICE float Logit(int64_t id, const float* sums) const {
    if (id == -1) return kLowestFloat;
    if (!IsClass(matrix, id)) return NotANumber();
    float sum = matrix.bias != nullptr ? matrix.bias[id] : 0.0f;
    for (int lane = 0; lane < kDotLanes; ++lane) sum += sums[lane];
    return sum;
  }
};

// rows[i] and biases[i] of shared class i, kGathersPerBlock at a time.
struct GatherRowsBody {
  ClassMatrix matrix;
  SharedClasses classes;
  float* rows;
  float* biases;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char*) const {
    block.ForEachThread([&](int thread) {
      const int64_t step = block.num_blocks() * kGathersPerBlock;
      int64_t i = block.index() * kGathersPerBlock + thread / kGatherLanes;
      for (; i < classes.size; i += step) Gather(i, thread % kGatherLanes);
    });
  }

 private:
  // Reads four columns before it writes one. The compiler cannot do this: `rows` might alias
  // the matrix, so it keeps the order of reads and writes.
  LARGEOUT_DEVICE void Gather(int64_t i, int lane) const {
    constexpr int kTogether = 4;
    const int64_t id = classes.ids[i], dim = matrix.dim;
    const bool known = IsClass(matrix, id);
    for (int64_t first = lane; first < dim; first += kTogether * kGatherLanes) {
      float values[kTogether];
      LARGEOUT_UNROLL
      for (int j = 0; j < kTogether; ++j) {
        const int64_t k = first + j * kGatherLanes;
        values[j] = known && k < dim ? matrix.embeddings[id * dim + k] : NotANumber();
      }
      LARGEOUT_UNROLL
      for (int j = 0; j < kTogether; ++j) {
        const int64_t k = first + j * kGatherLanes;
        if (k < dim) rows[i * dim + k] = values[j];
      }
    }
    if (lane == 0 && matrix.bias != nullptr) {
      biases[i] = known ? matrix.bias[id] : NotANumber();
    }
  }
};

// d_features[b], one example per block. The threads form groups of `columns` threads. Each
// group adds every n-th class of the example, where n is the number of groups, and the sums of
// the groups are added in order. REQUIRES: columns divides kRowDotThreads. Shared memory:
// kRowDotThreads floats.
struct FeatureGradientBody {
  ClassMatrix matrix;
  OwnClasses own;
  const float* d_logits;
  float* d_features;
  int columns;

  // With fewer registers the compiler would add each number before it reads the next.
  static constexpr int kThreads = kRowDotThreads, kBlocksTogether = 4;
  static constexpr int kSharedBytes = kRowDotThreads * sizeof(float);

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    float* const sums = reinterpret_cast<float*>(shared);
    for (int64_t row = block.index(); row < own.batch; row += block.num_blocks()) {
      for (int64_t first = 0; first < matrix.dim; first += columns) {
        block.ForEachThread([&](int thread) {
          const int64_t k = first + thread % columns;
          if (k < matrix.dim) sums[thread] = Partial(row, k, thread / columns);
        });
        block.ForEachThread([&](int thread) {
          const int64_t k = first + thread;
          if (thread < columns && k < matrix.dim) {
            d_features[row * matrix.dim + k] = Total(sums + thread);
          }
        });
      }
    }
  }

 private:
  LARGEOUT_DEVICE float Partial(int64_t row, int64_t k, int group) const {
    constexpr int kTogether = 8;
    const int step = kRowDotThreads / columns;
    float sum = 0;
    int64_t i = group;
    for (; i + (kTogether - 1) * step < own.per_row; i += kTogether * step) {
      sum = AddClasses<kTogether>(row * own.per_row + i, step, k, sum);
    }
    for (; i < own.per_row; i += step) {
      sum = AddClasses<1>(row * own.per_row + i, step, k, sum);
    }
    return sum;
  }

  // Adds column k of own classes i, i + step, ..., in this order. All numbers are read first,
  // without branches. An invalid id reads its d_logit instead of a row. For -1 the sum then
  // adds 0 * 0, which does not change it.
  template <int kSize>
  LARGEOUT_DEVICE float AddClasses(int64_t i, int step, int64_t k, float sum) const {
    int64_t ids[kSize];
    float weights[kSize], values[kSize];
    LARGEOUT_UNROLL
    for (int j = 0; j < kSize; ++j) ids[j] = own.ids[i + j * step];
    LARGEOUT_UNROLL
    for (int j = 0; j < kSize; ++j) {
      const float* const weight = d_logits + i + j * step;
      weights[j] = *weight;
      const bool known = IsClass(matrix, ids[j]);
      values[j] = *(known ? matrix.embeddings + ids[j] * matrix.dim + k : weight);
    }
    LARGEOUT_UNROLL
    for (int j = 0; j < kSize; ++j) {
      const bool known = IsClass(matrix, ids[j]);
      const float other = ids[j] == -1 ? 0.0f : NotANumber();
      sum = MultiplyAdd(known ? weights[j] : other, known ? values[j] : other, sum);
    }
    return sum;
  }

  LARGEOUT_DEVICE float Total(const float* sums) const {
    float total = 0;
    for (int i = 0; i < kRowDotThreads; i += columns) total += sums[i];
    return total;
  }
};

// The smallest power of two of threads that covers `dim`, up to the size of a block.
inline int GradientColumns(int64_t dim) {
  int columns = 1;
  while (columns < dim && columns < kRowDotThreads) columns *= 2;
  return columns;
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_BODY_H_
