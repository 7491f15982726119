#include <algorithm>
#include <cub/device/device_scan.cuh>

#include "custom_ops/core/sampling/log_uniform_distribution.h"
#include "custom_ops/core/sampling/uniform_distribution.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/memory.h"
#include "custom_ops/cuda/sampling.h"
#include "custom_ops/cuda/sampling_body.h"

namespace largeout {
namespace cuda {
namespace {

// The chain of jumpers, and the memory that cub needs to scan it.
struct Jumpers {
  Jumpers(int64_t num_sampled, Scratch* scratch)
      : num_sampled(num_sampled), ids(scratch->Take<int64_t>(num_sampled)) {
    Scan(nullptr);  // cub computes its memory if it gets none; errors are returned again by the
                    // later call
    cub_bytes = std::max(cub_bytes, size_t{1});
    cub_memory = scratch->Take<char>(static_cast<int64_t>(cub_bytes));
  }

  Status Scan(Stream stream) {
    return cub::DeviceScan::InclusiveScan(cub_memory, cub_bytes, ids, ids, LastClass(),
                                          static_cast<int>(num_sampled), stream);
  }

  const int64_t num_sampled;
  int64_t* const ids;  // [num_sampled]
  void* cub_memory = nullptr;
  size_t cub_bytes = 0;
};

template <class Count>
Status WriteTrueCounts(const SampledArrays& arrays, const Count& count, Stream stream) {
  return ForEach(arrays.num_true,
                 CountTrueClasses<Count>{count, arrays.true_classes, arrays.true_count},
                 stream);
}

template <class Distribution>
Status WithReplacement(const SampledArrays& arrays, const Distribution& distribution,
                       const int64_t* seed, Stream stream) {
  const LineCount<Distribution> count{distribution, static_cast<float>(arrays.num_sampled)};
  const Status status = WriteTrueCounts(arrays, count, stream);
  if (status != kOk) return status;
  return ForEach(
      arrays.num_sampled,
      DrawWithReplacement<Distribution>{count, seed, arrays.sampled, arrays.sampled_count},
      stream);
}

template <class Distribution, class Count>
Status WithoutReplacement(const SampledArrays& arrays, const Distribution& distribution,
                          const Count& count, const int64_t* seed, void* scratch,
                          Stream stream) {
  const int64_t num_sampled = arrays.num_sampled;
  Scratch parts(scratch);
  Jumpers jumpers(num_sampled, &parts);
  Status status = WriteTrueCounts(arrays, count, stream);
  if (status != kOk) return status;
  status = ForEach(
      num_sampled,
      FightStrata<Distribution>{distribution, num_sampled, seed, arrays.sampled, jumpers.ids},
      stream);
  if (status == kOk) status = jumpers.Scan(stream);
  if (status != kOk) return status;
  return ForEach(num_sampled,
                 NameJumpers<Count>{count, jumpers.ids, arrays.sampled, arrays.sampled_count},
                 stream);
}

template <class Distribution>
Status ClosedFormSample(const SampledArrays& arrays, int64_t num_classes, bool unique,
                        const int64_t* seed, void* scratch, Stream stream) {
  const Distribution distribution(num_classes, unique ? arrays.num_sampled : 1);
  if (!unique) return WithReplacement(arrays, distribution, seed, stream);
  return WithoutReplacement(arrays, distribution, LineCount<Distribution>{distribution, 1.0f},
                            seed, scratch, stream);
}

}  // namespace

int64_t UniqueSampleScratchBytes(int64_t num_sampled) {
  Scratch scratch(nullptr);
  const Jumpers jumpers(num_sampled, &scratch);
  return scratch.bytes();
}

Status UniformSample(const SampledArrays& arrays, int64_t num_classes, bool unique,
                     const int64_t* seed, void* scratch, Stream stream) {
  return ClosedFormSample<UniformDistribution>(arrays, num_classes, unique, seed, scratch,
                                               stream);
}

Status LogUniformSample(const SampledArrays& arrays, int64_t num_classes, bool unique,
                        const int64_t* seed, void* scratch, Stream stream) {
  return ClosedFormSample<LogUniformDistribution>(arrays, num_classes, unique, seed, scratch,
                                                  stream);
}

Status AliasSample(const SampledArrays& arrays, const AliasSlot* slots,
                   const float* probability, int64_t num_classes, const int64_t* seed,
                   Stream stream) {
  const AliasCount count{probability, num_classes, arrays.num_sampled};
  const Status status = WriteTrueCounts(arrays, count, stream);
  if (status != kOk) return status;
  return ForEach(arrays.num_sampled,
                 DrawAlias{slots, count, seed, arrays.sampled, arrays.sampled_count}, stream);
}

Status PivotalSample(const SampledArrays& arrays, const int64_t* cumulative,
                     int64_t num_classes, const int64_t* index, int64_t num_buckets,
                     const int64_t* seed, void* scratch, Stream stream) {
  const CumulativeTable table(cumulative, num_classes, index, num_buckets, arrays.num_sampled);
  return WithoutReplacement(arrays, table, TableCount{table, arrays.num_sampled}, seed, scratch,
                            stream);
}

}  // namespace cuda
}  // namespace largeout
