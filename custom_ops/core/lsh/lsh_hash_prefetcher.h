// Shared by the vectorised parts of the hashes. Include it only in lsh_hash*_simd.cc files (see
// simd_level.h).

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_PREFETCHER_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_PREFETCHER_H_

#include <cstdint>
#include <cstring>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/lsh/lsh_hash_simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {

// Prefetches rows in `portions` equal parts. Prefetching all at once would block other memory
// accesses.
class Prefetcher {
 public:
  Prefetcher(const UpcomingRows& rows, int64_t portions)
      : at_(rows.data), left_(rows.size), portion_(CeilDiv(rows.size, portions)) {}

  void Next() {
    for (due_ += portion_; due_ > 0 && left_ > 0; due_ -= kLine) {
      __builtin_prefetch(at_);
      at_ += kLine;
      left_ -= kLine;
    }
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(float);
  const float* at_;
  int64_t left_;
  const int64_t portion_;
  int64_t due_ = 0;
};

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_PREFETCHER_H_
