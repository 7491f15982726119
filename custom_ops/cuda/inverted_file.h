// The search of inverted files on the GPU, equal to that of core/inverted_file/inverted_file.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_INVERTED_FILE_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_INVERTED_FILE_H_

#include <cstdint>

#include "custom_ops/core/inverted_file/inverted_file.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// The largest num_probes and k of SearchLists: what it sorts is in shared memory.
inline constexpr int64_t kMostFound = 2048;

// Sizes of a search; only they decide about scratch.
struct ListSearch {
  int64_t batch, dim, num_probes, k;
};

// O((num_lists + batch) * dim), and for up to 2,048 queries O(num_probes + k).
int64_t SearchListsScratchBytes(const InvertedFile& file, const ListSearch& search);

// scores, ids [batch, k] as in core. Queries and means become codes first; then a block is a
// query: it scores all means, keeps the best, and scores their members. Bound by the bytes of
// codes, those of the means and of all members of a query's lists, mostly out of the cache.
// Lists that do not lie in the file are empty, ids in it that are no class passed over.
// All arrays are on the device. REQUIRES: 1 <= num_probes, k <= kMostFound.
Status SearchLists(const InvertedFile& file, const float* features, const ListSearch& search,
                   void* scratch, float* scores, int64_t* ids, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_INVERTED_FILE_H_
