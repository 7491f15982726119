// Queries of hash tables: for each row of a batch, classes that share buckets
// with it. Time and memory of a row are O(num_sampled + number of its buckets),
// whatever the number of classes, also where all of them are in one bucket.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_QUERY_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_QUERY_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/base/philox.h"
#include "custom_ops/core/lsh/lsh_tables.h"
#include "custom_ops/core/lsh/met_ids.h"

namespace largeout {

// The most codes that a row may have.
inline constexpr int64_t kMostCodes = MetIds::kBlocked - 1;

// A row may ask with several vectors, such as one a label: it then has their
// codes one after the other.
struct LshQueries {
  const int32_t* codes;   // [batch, num_codes]: bucket of table i % num_tables; negative: none
  const int64_t* labels;  // [batch, num_labels] in [0, num_classes); negative: none
  int64_t batch;
  int64_t num_codes;
  int64_t num_labels;
};

struct LshDraw {
  int64_t num_sampled;
  int64_t max_lookups;  // entries of the tables that a row looks at, at most
  bool fill;            // with uniform draws where too few classes are found; else with -1
  PhiloxSeed seed;

  // The row of a batch by which its numbers are drawn. Without a fill, as an index asks, it is
  // the same for all, so that an answer does not depend on the other queries of the batch.
  LARGEOUT_HOST_DEVICE int64_t RowOfDraws(int64_t row) const { return fill ? row : 0; }
};

// Both write ids [batch, num_sampled], the distinct classes of each row, none of
// them one of its labels, and num_filled [batch], how many of them were drawn
// uniformly because the buckets gave too few. Where there are fewer classes that
// are no labels, the row ends in -1. Functions of their arguments, on any number
// of threads. They return whether the tables are sound, i.e. name no class out of
// range; what is out of range is passed over.

// Goes through the row's buckets from a random one on, and through each of them
// from a random place on, until enough is found (Daghaghi et al. 2021).
bool WalkBuckets(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                 const ParallelFor& parallel, int64_t* ids, int32_t* num_filled);

// The classes met most often in the row's buckets, falling; of equals at the end
// of the list those with lower ids (Vijayanarasimhan et al. 2015). Where the
// buckets hold more than max_lookups entries, of the large ones only a stretch
// from a random place on is looked at, as long as that all of them together fit.
bool MostMetClasses(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                    const ParallelFor& parallel, int64_t* ids, int32_t* num_filled);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_QUERY_H_
