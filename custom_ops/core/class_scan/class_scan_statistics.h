// Computes the statistics of a pass over all classes from its logits. For X_simd.cc files only.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_STATISTICS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_STATISTICS_H_

#include <cstdint>

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/class_scan/class_scan_simd.h"
#include "custom_ops/core/class_scan/class_scan_tile.h"

namespace largeout {
namespace LARGEOUT_SIMD {

// Sums exponentials, and counts the classes that rank before each label.
class StatisticsConsumer {
 public:
  StatisticsConsumer(const RankSlots& slots, const ShardStatistics& shard)
      : slots_(slots), shard_(shard) {}

  void BeginPanel(int64_t panel, int64_t first, int64_t last) {
    begin_ = slots_.panel_begin[panel] * kPanelExamples;
    size_ = slots_.panel_begin[panel + 1] * kPanelExamples - begin_;
    for (int64_t i = 0; i < size_; i += kLanes) SetLimits(i, first, last);
    std::memset(sum_, 0, sizeof(sum_));
  }

  void EndPanel(int64_t panel) {
    double* total = shard_.total + panel * kPanelExamples;
    for (int i = 0; i < kPanelExamples; ++i) total[i] += sum_[i];
  }

  template <int T>
  inline __attribute__((always_inline)) void Logits(const float* logits, int64_t example,
                                                    int64_t first) {
    const Floats top = HighestOf<T>(logits);
    AddExponentials<T>(logits, example, top);
    for (int64_t i = example % kPanelExamples; i < size_; i += kPanelExamples) {
      const Floats limit = Load(shard_.limits + i);
      if (!AnyGreater(top, limit)) break;  // limits increase from slot to slot
      if (__builtin_expect(shard_.label_in_block[i], false)) {
        CountInBlock<T>(logits, i, first);
      } else {
        CountHigher<T>(logits, i, limit);
      }
    }
  }

 private:
  // The shift may be lower than the highest logit by this much.
  static constexpr float kSlack = 30.0f;

  // A class ranks before the label if its logit is above the limit. The limit is the score of
  // the label, or the next float below it for classes of lower id, for which ties count. The
  // label's own block contains both kinds, so ids are compared too.
  void SetLimits(int64_t i, int64_t first, int64_t last) {
    Ints classes;
    std::memcpy(&classes, slots_.classes + begin_ + i, sizeof(classes));
    const Ints later = classes >= static_cast<int32_t>(first);
    const Ints inside = later & (classes < static_cast<int32_t>(last));
    const Floats limit =
        later ? Load(slots_.previous_scores + begin_ + i) : Load(slots_.scores + begin_ + i);
    Store(limit, shard_.limits + i);
    shard_.label_in_block[i] = AnyGreater(inside ? Broadcast(1.0f) : Floats{}, Floats{});
  }

  template <int T>
  inline __attribute__((always_inline)) void AddExponentials(const float* logits,
                                                             int64_t example, Floats top) {
    Floats shift = Load(shard_.shift + example);
    if (__builtin_expect(AnyGreater(top, shift + kSlack), false)) shift = Raise(example, top);
    Floats sum = Load(sum_ + example % kPanelExamples);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sum += Exp(Load(logits + t * kPanelExamples) - shift);
    Store(sum, sum_ + example % kPanelExamples);
  }

  // Raises the shift of the examples that need it to the highest logit.
  __attribute__((noinline)) Floats Raise(int64_t example, Floats top) {
    const Floats old = Load(shard_.shift + example);
    const Floats shift = top > old + kSlack ? top : old;
    float factor[kLanes];
    Store(Exp(old - shift), factor);
    for (int lane = 0; lane < kLanes; ++lane) {
      sum_[example % kPanelExamples + lane] *= factor[lane];
      shard_.total[example + lane] *= factor[lane];
    }
    Store(shift, shard_.shift + example);
    return shift;
  }

  template <int T>
  inline __attribute__((always_inline)) void CountHigher(const float* logits, int64_t i,
                                                         Floats limit) {
    Ints higher{};
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) higher -= Load(logits + t * kPanelExamples) > limit;
    AddCounts(i, higher);
  }

  template <int T>
  __attribute__((noinline)) void CountInBlock(const float* logits, int64_t i, int64_t first) {
    const Floats score = Load(slots_.scores + begin_ + i);
    Ints classes, higher{};
    std::memcpy(&classes, slots_.classes + begin_ + i, sizeof(classes));
    for (int t = 0; t < T; ++t) {
      const Floats logit = Load(logits + t * kPanelExamples);
      const int32_t id = static_cast<int32_t>(first) + t;
      higher -= (logit > score) & (classes != id);
      higher -= (logit == score) & (classes > id);
    }
    AddCounts(i, higher);
  }

  void AddCounts(int64_t i, Ints higher) {
    Ints counts;
    std::memcpy(&counts, shard_.higher + begin_ + i, sizeof(counts));
    counts += higher;
    std::memcpy(shard_.higher + begin_ + i, &counts, sizeof(counts));
  }

  const RankSlots slots_;
  const ShardStatistics shard_;
  int64_t begin_ = 0, size_ = 0;  // of the panel's slots
  alignas(64) float sum_[kPanelExamples];
};

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_STATISTICS_H_
