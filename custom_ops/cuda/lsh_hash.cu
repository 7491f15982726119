#include <algorithm>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/lsh_hash.h"
#include "custom_ops/cuda/lsh_hash_body.h"

namespace largeout {
namespace cuda {
namespace {

constexpr int64_t kMostSharedBytes = 48 * 1024;  // available on any GPU
constexpr int64_t kBlocksWithScratch = 512;
constexpr int64_t kMostHashBlocks = 1 << 14;  // each processes several panels if there are more

template <bool kSimHash, bool kInShared>
Status HashWith(const HashPanel& panel, const HashFamily& family, const float* rows,
                int64_t num_rows, const HashCodes& codes, void* scratch, Stream stream) {
  const HashBody<kSimHash, kInShared> body{family,         panel,
                                           RuleOf(family), rows,
                                           num_rows,       HashesByFours(family, rows),
                                           codes,          static_cast<char*>(scratch)};
  const int64_t panels = CeilDiv(num_rows, panel.rows());
  const int64_t most_blocks = kInShared ? kMostHashBlocks : kBlocksWithScratch;
  return ForEachBlock(std::min(panels, most_blocks), kHashThreads,
                      kInShared ? static_cast<int>(panel.Bytes()) : 0, body, stream);
}

}  // namespace

int64_t HashScratchBytes(const HashFamily& family) {
  const int64_t bytes = PanelFor(family, kHashThreads).Bytes();
  return bytes <= kMostSharedBytes ? 0 : bytes * kBlocksWithScratch;
}

Status HashRows(const HashFamily& family, const float* rows, int64_t num_rows,
                const HashCodes& codes, void* scratch, Stream stream) {
  const HashPanel panel = PanelFor(family, kHashThreads);
  const bool shared = panel.Bytes() <= kMostSharedBytes;
  const auto with = IsSimHash(family)
                        ? (shared ? HashWith<true, true> : HashWith<true, false>)
                        : (shared ? HashWith<false, true> : HashWith<false, false>);
  return with(panel, family, rows, num_rows, codes, scratch, stream);
}

}  // namespace cuda
}  // namespace largeout
