#include <algorithm>

#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/lsh_query.h"
#include "custom_ops/cuda/lsh_query_body.h"

namespace largeout {
namespace cuda {
namespace {

// The number of blocks. Further examples wait for a block.
int64_t NumBlocks(const LshQueries& queries, const QueryMemory& memory) {
  constexpr int64_t kMostQueryBlocks = 2048, kMostScratch = int64_t{256} << 20;
  const int64_t fit = std::max<int64_t>(1, kMostScratch / memory.Bytes());
  return std::min({queries.batch, kMostQueryBlocks, fit});
}

QueryMemory MemoryFor(const LshQueries& queries, const LshDraw& draw, int64_t max_met) {
  return QueryMemory(queries, draw, max_met, kQueryThreads);
}

int64_t ScratchBytes(const LshQueries& queries, const QueryMemory& memory) {
  return NumBlocks(queries, memory) * memory.Bytes();
}

template <class Body>
Status Query(const QueryBody& rows, Stream stream) {
  return ForEachBlock(NumBlocks(rows.queries, rows.memory), kQueryThreads,
                      static_cast<int>(QueryShared::Bytes(kQueryThreads)), Body{rows}, stream);
}

}  // namespace

int64_t WalkBucketsScratchBytes(const LshQueries& queries, const LshDraw& draw) {
  return ScratchBytes(queries, MemoryFor(queries, draw, 0));
}

int64_t MostMetClassesScratchBytes(const LshQueries& queries, const LshDraw& draw) {
  return ScratchBytes(queries, MemoryFor(queries, draw, draw.max_lookups));
}

Status WalkBuckets(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                   const int64_t* seed, int64_t* ids, int32_t* num_filled, void* scratch,
                   Stream stream) {
  const QueryMemory memory = MemoryFor(queries, draw, 0);
  return Query<WalkBody>(
      {tables, queries, draw, memory, static_cast<char*>(scratch), seed, ids, num_filled},
      stream);
}

Status MostMetClasses(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                      const int64_t* seed, int64_t* ids, int32_t* num_filled, void* scratch,
                      Stream stream) {
  const QueryMemory memory = MemoryFor(queries, draw, draw.max_lookups);
  return Query<MostMetBody>(
      {tables, queries, draw, memory, static_cast<char*>(scratch), seed, ids, num_filled},
      stream);
}

}  // namespace cuda
}  // namespace largeout
