// One set of classes for a whole batch, out of the buckets of all its rows.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_POOL_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_POOL_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/philox.h"
#include "custom_ops/core/lsh/lsh_query.h"

namespace largeout {

// The random place that a systematic draw of num_sampled out of num_entries starts from.
LARGEOUT_HOST_DEVICE inline int64_t StartOfDraws(PhiloxSeed seed, int64_t num_entries) {
  return ScaleBits(BitsOfDraw(seed, 0).first, num_entries);
}

// The entry that is its i-th: floor((i * num_entries + start) / num_sampled).
LARGEOUT_HOST_DEVICE inline int64_t EntryOfDraw(int64_t i, int64_t start, int64_t num_entries,
                                                int64_t num_sampled) {
  const auto scaled = static_cast<unsigned __int128>(i) * num_entries + start;
  return static_cast<int64_t>(scaled / num_sampled);
}

// Draws num_sampled of the entries in the buckets of all queries, each entry
// with the same probability: a systematic draw of one random start, so a class
// that stands in M of the E entries comes num_sampled * M / E times in the mean.
// A class met with probability P per table and query comes, over the hash
// functions, num_sampled * (sum of P) / E times. Returns E; where it is 0, writes
// -1. Labels are not excluded. O(num_sampled + number of buckets).
int64_t DrawEntries(const LshTables& tables, const LshQueries& queries, int64_t num_sampled,
                    PhiloxSeed seed, const ParallelFor& parallel, int64_t* pool);

// The union of lists [batch, width], each sorted by falling merit and padded with
// -1: the first of each list, then the second of each, until `num_sampled` distinct
// classes are found; filled up by uniform draws, and by -1 if there are no more.
// Returns the number of uniform draws. O(batch * width + num_sampled).
int64_t UnionOfLists(const int64_t* lists, int64_t batch, int64_t width, int64_t num_classes,
                     int64_t num_sampled, PhiloxSeed seed, int64_t* pool);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_POOL_H_
