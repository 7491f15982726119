// The thread bodies of the samplers (sampling.h).
//
// Without replacement, one thread per stratum decides its fight. The thread does not know which
// class jumps into its stratum, so its result is a class or kJumper, which stands for that
// class. A scan with LastClass then finds the class: the last one that jumped before.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_SAMPLING_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_SAMPLING_BODY_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/sampling/alias_table.h"
#include "custom_ops/core/sampling/cumulative_table.h"
#include "custom_ops/core/sampling/sampling.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/seed.h"

namespace largeout {
namespace cuda {

// Expected counts; NaN for invalid classes.
template <class Distribution>
struct LineCount {
  Distribution distribution;
  float draws;

  LARGEOUT_DEVICE float operator()(int64_t c) const {
    if (c < 0 || c >= distribution.num_classes()) return __builtin_nanf("");
    return draws * LengthInStrata(distribution, c);
  }
};

// Counts for num_strata strata; NaN if the sum of the table does not match.
struct TableCount {
  CumulativeTable table;
  int64_t num_strata;

  LARGEOUT_DEVICE float operator()(int64_t c) const {
    const int64_t n = table.num_classes();
    const bool made_for_these = table.Cumulative(n) == num_strata * table.stratum();
    if (!made_for_these || c < 0 || c >= n) return __builtin_nanf("");
    return LengthInStrata(table, c);
  }
};

struct AliasCount {
  const float* probability;
  int64_t num_classes;
  int64_t num_sampled;

  LARGEOUT_DEVICE float operator()(int64_t c) const {
    const bool known = 0 <= c && c < num_classes && probability[c] > 0;
    return known ? num_sampled * probability[c] : __builtin_nanf("");
  }
};

template <class Count>
struct CountTrueClasses {
  Count count;
  const int64_t* true_classes;
  float* true_count;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    true_count[i] = true_classes[i] == -1 ? 1.0f : count(true_classes[i]);
  }
};

template <class Distribution>
struct DrawWithReplacement {
  LineCount<Distribution> count;
  const int64_t* seed;
  int64_t* sampled;
  float* sampled_count;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    sampled[i] = DrawOne(count.distribution, SeedAt(seed), i);
    sampled_count[i] = count(sampled[i]);
  }
};

struct DrawAlias {
  const AliasSlot* slots;
  AliasCount count;
  const int64_t* seed;
  int64_t* sampled;
  float* sampled_count;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const int64_t c = DrawFromAliasTable(slots, count.num_classes, BitsOfDraw(SeedAt(seed), i));
    const bool known = 0 <= c && c < count.num_classes;
    sampled[i] = known ? c : 0;
    sampled_count[i] = count(c);
  }
};

// ids[i] = the class that is sampled for stratum i, and jumpers[i + 1] = the class that jumps
// over its end. kJumper stands for the class that jumped into the stratum. jumpers[0] starts
// the chain.
template <class Distribution>
struct FightStrata {
  Distribution distribution;
  int64_t num_strata;
  const int64_t* seed;
  int64_t* ids;      // [num_strata]
  int64_t* jumpers;  // [num_strata]

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const StrataWalk<Distribution> walk(distribution, num_strata, SeedAt(seed));
    const auto outcome = walk.Fight(walk.PickIn(i, walk.JumperLength(i)));
    ids[i] = outcome.selected;
    if (i == 0) jumpers[0] = walk.start();
    if (i + 1 < num_strata) jumpers[i + 1] = outcome.next;
  }
};

inline constexpr int64_t kNobodyNew = -1;  // StrataWalk's kJumper

// Associative. An inclusive scan of the jumpers with it gives the class that jumps into each
// stratum.
struct LastClass {
  LARGEOUT_HOST_DEVICE int64_t operator()(int64_t before, int64_t after) const {
    return after == kNobodyNew ? before : after;
  }
};

template <class Count>
struct NameJumpers {
  Count count;
  const int64_t* jumpers;
  int64_t* ids;
  float* sampled_count;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    if (ids[i] == kNobodyNew) ids[i] = jumpers[i];
    sampled_count[i] = count(ids[i]);
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_SAMPLING_BODY_H_
