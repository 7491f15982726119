// The inner loops of every pass over the classes: the logits of a few classes for a few vectors
// of examples, in registers. For X_simd.cc files only.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_TILE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_TILE_H_

#include <cstdint>

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/class_scan/class_scan_simd.h"
#include "custom_ops/core/linear_algebra/dense_product_tile.h"

namespace largeout {
namespace LARGEOUT_SIMD {

inline const float* PanelColumns(const ClassMatrix& matrix, const Panels& panels,
                                 int64_t panel) {
  return panels.data + panel * kPanelExamples * matrix.dim;
}

// The logits of T classes, starting at `first`, for V vectors of examples, into tile [T,
// kPanelExamples].
template <int T, int V>
void LogitTile(const ClassMatrix& matrix, const float* columns, int64_t first, float* tile) {
  Floats sum[T][V];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const Floats bias = Broadcast(matrix.bias != nullptr ? matrix.bias[first + t] : 0.0f);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[t][v] = bias;
  }
  ProductTile<T, V>({matrix.embeddings + first * matrix.dim, matrix.dim, 1}, columns,
                    kPanelExamples, matrix.dim, sum);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) Store(sum[t][v], tile + t * kPanelExamples + v * kLanes);
  }
}

// The logits of the class with row `embedding` for B examples of features [B, dim].
template <int B>
inline void FewLogits(const float* embedding, const float* features, int64_t dim, float bias,
                      float* logits) {
  Floats even[B] = {}, odd[B] = {};
  int64_t k = 0;
  for (; k + 2 * kLanes <= dim; k += 2 * kLanes) {
    const Floats first = Load(embedding + k), second = Load(embedding + k + kLanes);
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      even[b] += first * Load(features + b * dim + k);
      odd[b] += second * Load(features + b * dim + k + kLanes);
    }
  }
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b) {
    float rest = bias;
    for (int64_t i = k; i < dim; ++i) rest += embedding[i] * features[b * dim + i];
    logits[b] = SumLanes(even[b] + odd[b]) + rest;
  }
}

// Like LogitTile, for the single vector of examples of a small batch.
template <int T>
void FewExamplesTile(const ClassMatrix& matrix, const Panels& panels, int64_t first,
                     float* tile) {
  const auto logits_of = [&](auto logits) {
    for (int t = 0; t < T; ++t) {
      const int64_t id = first + t;
      const float bias = matrix.bias != nullptr ? matrix.bias[id] : 0.0f;
      logits(matrix.embeddings + id * matrix.dim, panels.few_examples, matrix.dim, bias,
             tile + t * kPanelExamples);
    }
  };
  static_assert(kFewExamples == 4, "a case for each number of examples");
  switch (panels.num_examples) {
    case 1:
      return logits_of(FewLogits<1>);
    case 2:
      return logits_of(FewLogits<2>);
    case 3:
      return logits_of(FewLogits<3>);
    default:
      return logits_of(FewLogits<4>);
  }
}

// Like ScanTiles, for a small batch.
template <class Consumer>
void ScanFewExamples(const ClassMatrix& matrix, const Panels& panels, int64_t begin,
                     int64_t end, Consumer& use) {
  alignas(64) float tile[kTileRows * kPanelExamples] = {};
  int64_t first = begin;
  for (; first + kTileRows <= end; first += kTileRows) {
    FewExamplesTile<kTileRows>(matrix, panels, first, tile);
    use.template Logits<kTileRows>(tile, 0, first);
  }
  for (; first < end; ++first) {
    FewExamplesTile<1>(matrix, panels, first, tile);
    use.template Logits<1>(tile, 0, first);
  }
}

// Prefetches the rows of the next tile while the current tile is computed. All rows of a tile
// are read in parallel, which the processor's own prefetcher does not recognise.
inline void PrefetchTile(const ClassMatrix& matrix, int64_t first) {
  constexpr int64_t kLine = 64 / sizeof(float);
  const float* rows = matrix.embeddings + first * matrix.dim;
  for (int64_t i = 0; i < kTileRows * matrix.dim; i += kLine) __builtin_prefetch(rows + i);
}

// Calls use.Logits<T>(logits, example, first) with the logits [T, kPanelExamples] of T classes,
// starting at `first`, for one vector of examples, starting at `example`. It does so for V
// vectors of examples and all classes of [begin, end).
template <int V, class Consumer>
void ScanTiles(const ClassMatrix& matrix, const float* columns, int64_t example, int64_t begin,
               int64_t end, Consumer& use) {
  alignas(64) float tile[kTileRows * kPanelExamples];
  int64_t first = begin;
  for (; first + kTileRows <= end; first += kTileRows) {
    PrefetchTile(matrix, first + kTileRows);
    LogitTile<kTileRows, V>(matrix, columns, first, tile);
    for (int v = 0; v < V; ++v) {
      use.template Logits<kTileRows>(tile + v * kLanes, example + v * kLanes, first);
    }
  }
  for (; first < end; ++first) {
    LogitTile<1, V>(matrix, columns, first, tile);
    for (int v = 0; v < V; ++v) {
      use.template Logits<1>(tile + v * kLanes, example + v * kLanes, first);
    }
  }
}

// The same for `examples` examples, which are at most V vectors.
template <int V, class Consumer>
void ScanRest(const ClassMatrix& matrix, const float* columns, int64_t example,
              int64_t examples, int64_t begin, int64_t end, Consumer& use) {
  if (examples > (V - 1) * kLanes) {
    ScanTiles<V>(matrix, columns, example, begin, end, use);
  } else if constexpr (V > 1) {
    ScanRest<V - 1>(matrix, columns, example, examples, begin, end, use);
  }
}

// The same for all examples of a panel.
template <class Consumer>
void ScanPanel(const ClassMatrix& matrix, const Panels& panels, int64_t panel, int64_t begin,
               int64_t end, Consumer& use) {
  if (panels.few_examples != nullptr) return ScanFewExamples(matrix, panels, begin, end, use);
  const int64_t example = panel * kPanelExamples;
  const int64_t left = panels.num_examples - example;
  const int64_t examples = left < kPanelExamples ? left : kPanelExamples;
  const float* columns = PanelColumns(matrix, panels, panel);
  int64_t r = 0;
  for (; r + (kTileVectors - 1) * kLanes < examples; r += kTileVectors * kLanes) {
    ScanTiles<kTileVectors>(matrix, columns + r, example + r, begin, end, use);
  }
  ScanRest<kTileVectors - 1>(matrix, columns + r, example + r, examples - r, begin, end, use);
}

// Passes all logits of the classes [begin, end) to `use`: block by block, and within a block
// panel by panel. The panel stays in the first-level cache.
template <class Consumer>
void Scan(const ClassMatrix& matrix, const Panels& panels, int64_t begin, int64_t end,
          Consumer& use) {
  for (int64_t first = begin; first < end; first += kBlockClasses) {
    const int64_t last = first + kBlockClasses < end ? first + kBlockClasses : end;
    for (int64_t panel = 0; panel < panels.num_panels; ++panel) {
      use.BeginPanel(panel, first, last);
      ScanPanel(matrix, panels, panel, first, last, use);
      use.EndPanel(panel);
    }
  }
}

// The highest of T logits, ignoring NaN.
template <int T>
inline Floats HighestOf(const float* logits) {
  Floats top = Broadcast(-__builtin_inff());
  for (int t = 0; t < T; ++t) top = Max(Load(logits + t * kPanelExamples), top);
  return top;
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_TILE_H_
