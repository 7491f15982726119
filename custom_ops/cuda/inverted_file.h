// The search of inverted files on the GPU, equal to that of core/inverted_file/inverted_file.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_INVERTED_FILE_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_INVERTED_FILE_H_

#include <cstdint>

#include "custom_ops/core/inverted_file/inverted_file.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// The largest num_probes and k of SearchLists, which sorts in shared memory.
inline constexpr int64_t kMostFound = 2048;

// The sizes of a search, which determine its scratch.
struct ListSearch {
  int64_t batch, dim, num_probes, k;
};

// O((num_lists + batch) * dim), and O(num_probes + k) for each of up to 2,048 queries.
int64_t SearchListsScratchBytes(const InvertedFile& file, const ListSearch& search);

// scores, ids [batch, k] as in core. Queries and means are quantised first. A block then
// processes a query: it scores all means, keeps the best lists, and scores their members. Bound
// by the bytes of the codes of all means and of the members of the searched lists. Lists with
// invalid offsets count as empty, and invalid ids are skipped. All arrays are on the device.
// REQUIRES: 1 <= num_probes, k <= kMostFound.
Status SearchLists(const InvertedFile& file, const float* features, const ListSearch& search,
                   void* scratch, float* scores, int64_t* ids, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_INVERTED_FILE_H_
