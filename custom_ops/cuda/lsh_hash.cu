#include <algorithm>

#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/lsh_hash.h"
#include "custom_ops/cuda/lsh_hash_body.h"

namespace largeout {
namespace cuda {
namespace {

constexpr int64_t kMostSharedBytes = 48 * 1024;  // on any GPU
constexpr int64_t kBlocksWithScratch = 512;

Status Hash(const HashFamily& family, const float* rows, int64_t num_rows,
            const HashCodes& codes, int32_t* values, void* scratch, Stream stream) {
  const int64_t bytes = HashBlockBytes(family, kHashThreads);
  const bool shared = bytes <= kMostSharedBytes;
  const HashBody body{family,
                      RuleOf(family),
                      rows,
                      num_rows,
                      codes,
                      values,
                      shared ? nullptr : static_cast<char*>(scratch)};
  return ForEachBlock(shared ? num_rows : std::min(num_rows, kBlocksWithScratch), kHashThreads,
                      shared ? static_cast<int>(bytes) : 0, body, stream);
}

}  // namespace

int64_t HashScratchBytes(const HashFamily& family) {
  const int64_t bytes = HashBlockBytes(family, kHashThreads);
  return bytes <= kMostSharedBytes ? 0 : bytes * kBlocksWithScratch;
}

Status HashRows(const HashFamily& family, const float* rows, int64_t num_rows,
                const HashCodes& codes, void* scratch, Stream stream) {
  return Hash(family, rows, num_rows, codes, nullptr, scratch, stream);
}

Status HashValues(const HashFamily& family, const float* rows, int64_t num_rows,
                  int32_t* values, void* scratch, Stream stream) {
  return Hash(family, rows, num_rows, HashCodes{}, values, scratch, stream);
}

}  // namespace cuda
}  // namespace largeout
