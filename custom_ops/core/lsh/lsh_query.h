// Queries of hash tables: for each example of a batch, classes that share buckets with it. Time
// and memory per example are O(num_sampled + number of its buckets), independent of the number
// of classes, even if all classes are in one bucket.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_QUERY_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_QUERY_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/base/philox.h"
#include "custom_ops/core/lsh/lsh_tables.h"
#include "custom_ops/core/lsh/met_ids.h"

namespace largeout {

// The largest number of codes per example.
inline constexpr int64_t kMostCodes = MetIds::kBlocked - 1;

// An example may query with several vectors, such as one per label. Their codes are then
// concatenated.
struct LshQueries {
  // [batch, num_codes]: bucket of table i % num_tables; negative: padding.
  const int32_t* codes;
  const int64_t* labels;  // [batch, num_labels] in [0, num_classes); negative: padding
  int64_t batch;
  int64_t num_codes;
  int64_t num_labels;
};

struct LshDraw {
  int64_t num_sampled;
  int64_t max_lookups;  // the most entries of the tables that are read per example
  bool fill;            // with uniform draws if too few classes are found; else with -1
  PhiloxSeed seed;

  // The example number that selects the random numbers. Without `fill`, as for an index, it is
  // the same for all examples, so that a result does not depend on the other queries of the
  // batch.
  LARGEOUT_HOST_DEVICE int64_t RowOfDraws(int64_t row) const { return fill ? row : 0; }
};

// Both functions write ids [batch, num_sampled], the distinct classes of each example without
// its labels, and num_filled [batch], the number of classes that were drawn uniformly because
// the buckets had too few. If fewer classes exist, the ids end in -1. The results do not depend
// on the number of threads. The functions return whether the tables are valid, i.e. contain no
// class out of range; such entries are skipped.

// Visits the buckets of an example, starting at a random one, and the entries of each bucket,
// starting at a random one, until enough classes are found (Daghaghi et al. 2021).
bool WalkBuckets(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                 const ParallelFor& parallel, int64_t* ids, int32_t* num_filled);

// The classes that occur most often in the buckets of an example, in decreasing order. For ties
// at the end of the list, lower ids win (Vijayanarasimhan et al. 2015). If the buckets hold
// more than max_lookups entries, only a part of each large bucket is read, starting at a random
// entry. All parts have the same length, chosen so that they fit.
bool MostMetClasses(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                    const ParallelFor& parallel, int64_t* ids, int32_t* num_filled);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_QUERY_H_
