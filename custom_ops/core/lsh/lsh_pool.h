// Chooses one set of classes for a whole batch from the buckets of all its examples.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_POOL_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_POOL_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/philox.h"
#include "custom_ops/core/lsh/lsh_query.h"

namespace largeout {

// The random start of a systematic draw of num_sampled out of num_entries.
LARGEOUT_HOST_DEVICE inline int64_t StartOfDraws(PhiloxSeed seed, int64_t num_entries) {
  return ScaleBits(BitsOfDraw(seed, 0).first, num_entries);
}

// The entry of draw i: floor((i * num_entries + start) / num_sampled).
LARGEOUT_HOST_DEVICE inline int64_t EntryOfDraw(int64_t i, int64_t start, int64_t num_entries,
                                                int64_t num_sampled) {
  const auto scaled = static_cast<unsigned __int128>(i) * num_entries + start;
  return static_cast<int64_t>(scaled / num_sampled);
}

// Draws num_sampled of the entries in the buckets of all queries, each entry with the same
// probability. This is a systematic draw with one random start: a class with M of the E entries
// is drawn num_sampled * M / E times on average. If a class is met with probability P per table
// and query, its expected count over the hash functions is num_sampled * (sum of P) / E.
// Returns E. If E is 0, writes -1. Labels are not excluded. O(num_sampled + number of buckets).
int64_t DrawEntries(const LshTables& tables, const LshQueries& queries, int64_t num_sampled,
                    PhiloxSeed seed, const ParallelFor& parallel, int64_t* pool);

// The union of lists [batch, width], each sorted by decreasing merit and padded with -1. Takes
// the first id of each list, then the second of each list, until `num_sampled` distinct classes
// are found. Fills up with uniform draws, and with -1 if no more classes exist. Returns the
// number of uniform draws. O(batch * width + num_sampled).
int64_t UnionOfLists(const int64_t* lists, int64_t batch, int64_t width, int64_t num_classes,
                     int64_t num_sampled, PhiloxSeed seed, int64_t* pool);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_POOL_H_
