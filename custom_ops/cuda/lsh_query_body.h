// The block bodies of the queries (lsh_query.h). A block processes one example at a time.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_BODY_H_

#include <algorithm>
#include <cstdint>

#include "custom_ops/core/lsh/lsh_query.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/lsh_query_row.h"
#include "custom_ops/cuda/most_met_body.h"
#include "custom_ops/cuda/seed.h"

namespace largeout {
namespace cuda {

inline constexpr int kQueryThreads = 128;  // a power of two

// The scratch of a block. max_met: the largest number of classes that are listed before the
// result is filled up; 0 if there is no list.
struct QueryMemory {
  int64_t capacity;
  int64_t max_met;
  int64_t order_size;

  QueryMemory(const LshQueries& queries, const LshDraw& draw, int64_t max_met, int threads)
      : capacity(
            MetSet::CapacityFor(queries.num_labels + max_met + draw.num_sampled + 2 * threads)),
        max_met(max_met),
        order_size(max_met == 0 ? 0 : MetSet::CapacityFor((draw.num_sampled + 1) / 2)) {}

  LARGEOUT_HOST_DEVICE int64_t Bytes() const {
    const int64_t words = (max_met == 0 ? 2 : 3) * capacity + max_met + max_met % 2;
    return 8 * order_size + 4 * words;
  }

  LARGEOUT_DEVICE uint64_t* Order(char* memory) const {
    return reinterpret_cast<uint64_t*>(memory);
  }

  LARGEOUT_DEVICE MetSet Met(char* memory) const {
    auto* keys = reinterpret_cast<uint32_t*>(Order(memory) + order_size);
    uint32_t* counts = max_met == 0 ? nullptr : keys + 2 * capacity;
    return {keys, keys + capacity, counts, capacity};
  }

  LARGEOUT_DEVICE uint32_t* Places(char* memory) const { return Met(memory).counts + capacity; }
};

struct QueryBody {
  LshTables tables;
  LshQueries queries;
  LshDraw draw;
  QueryMemory memory;
  char* scratch;        // memory.Bytes() per block
  const int64_t* seed;  // [2]
  int64_t* ids;         // [batch, num_sampled]
  int32_t* num_filled;  // [batch]

  // Calls query(one, to) for the examples of the block. It returns how many ids were drawn.
  template <class Block, class Query>
  LARGEOUT_DEVICE void ForRows(const Block& block, const MetSet& met, const QueryShared& shared,
                               const Query& query) const {
    for (int64_t row = block.index(); row < queries.batch; row += block.num_blocks()) {
      const RowOfBlock<Block> one(block, tables, queries, draw, SeedAt(seed), row, met, shared);
      const int64_t drawn = query(one, ids + row * draw.num_sampled);
      block.ForEachThread([&](int t) {
        if (t == 0) num_filled[row] = static_cast<int32_t>(drawn);
      });
    }
  }
};

struct WalkBody {
  QueryBody rows;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* memory) const {
    const QueryShared shared(memory, block.size());
    const MetSet met = rows.memory.Met(rows.scratch + block.index() * rows.memory.Bytes());
    rows.ForRows(block, met, shared, [&](const RowOfBlock<Block>& one, int64_t* ids) {
      return Walk(block, one, shared, met, ids);
    });
  }

 private:
  template <class Block>
  LARGEOUT_DEVICE int64_t Walk(const Block& block, const RowOfBlock<Block>& one,
                               const QueryShared& shared, const MetSet& met,
                               int64_t* ids) const {
    const int64_t num_codes = rows.queries.num_codes, wanted = rows.draw.num_sampled;
    const int64_t start = ScaleBits(one.draws()(0).second, num_codes);
    int64_t found = 0, lookups = rows.draw.max_lookups;
    for (int64_t j = 0; j < num_codes && found < wanted && lookups > 0; j += block.size()) {
      block.ForEachThread([&](int t) {
        const int64_t i = j + t < num_codes ? (start + j + t) % num_codes : num_codes;
        shared.buckets[t] = one.BucketFrom(i, 0, true);
      });
      const auto take = [&](int64_t rank, int64_t slot) {
        if (rank < wanted) ids[rank] = met.keys[slot];
      };
      lookups -= one.TakeEntries(rows.tables.num_classes, lookups, wanted, take, &found);
    }
    found = found < wanted ? found : wanted;
    return one.Complete(found, found, ids);
  }
};

struct MostMetBody {
  QueryBody rows;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* memory) const {
    const QueryShared shared(memory, block.size());
    char* of_block = rows.scratch + block.index() * rows.memory.Bytes();
    const MetSet met = rows.memory.Met(of_block);
    rows.ForRows(block, met, shared, [&](const RowOfBlock<Block>& one, int64_t* ids) {
      return MostMet(block, one, shared, met, of_block, ids);
    });
  }

 private:
  // core's LongestStretch, with its sums computed by all threads.
  template <class Block>
  LARGEOUT_DEVICE int64_t LongestStretch(const Block& block, const RowOfBlock<Block>& one,
                                         int64_t* sums) const {
    const int64_t num_codes = rows.queries.num_codes;
    for (int64_t stretch = 0;;) {
      block.ForEachThread([&](int t) {
        sums[t] = 0;
        for (int64_t i = t; i < num_codes; i += block.size()) {
          const int64_t size = one.BucketSize(i);
          sums[t] += size < stretch ? size : stretch;
        }
      });
      const int64_t total = SumOf(block, sums);
      block.ForEachThread([&](int t) {
        sums[t] = 0;
        for (int64_t i = t; i < num_codes; i += block.size()) {
          sums[t] += one.BucketSize(i) > stretch;
        }
      });
      const int64_t num_longer = SumOf(block, sums);
      const int64_t more = num_longer == 0 ? 0 : (rows.draw.max_lookups - total) / num_longer;
      if (more == 0) return stretch;
      stretch += more;
    }
  }

  template <class Block>
  LARGEOUT_DEVICE int64_t MostMet(const Block& block, const RowOfBlock<Block>& one,
                                  const QueryShared& shared, const MetSet& met, char* of_block,
                                  int64_t* ids) const {
    constexpr int64_t kAll = int64_t{1} << 62;
    const int64_t longest = LongestStretch(block, one, shared.ranks);
    uint32_t* places = rows.memory.Places(of_block);
    int64_t size = 0;
    for (int64_t j = 0; j < rows.queries.num_codes; j += block.size()) {
      block.ForEachThread(
          [&](int t) { shared.buckets[t] = one.BucketFrom(j + t, longest, false); });
      const auto list = [&](int64_t rank, int64_t slot) {
        places[rank] = static_cast<uint32_t>(slot);
      };
      one.TakeEntries(longest, kAll, kAll, list, &size);
    }
    const int64_t wanted = size < rows.draw.num_sampled ? size : rows.draw.num_sampled;
    const MostMetOfBlock<Block> most(block, met, places, size, shared.ranks);
    most.Write(wanted, rows.tables.num_classes, rows.memory.Order(of_block),
               rows.memory.order_size, ids);
    return one.Complete(wanted, size, ids);
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_BODY_H_
