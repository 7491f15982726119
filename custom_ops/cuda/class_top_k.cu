#include "custom_ops/cuda/class_scan.h"
#include "custom_ops/cuda/class_top_k_body.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace {

struct Parts {
  ScoreKey* lists;
  ScoreKey* area;
};

template <class Shape>
Parts CutParts(const ScanPlan& plan, int64_t k, Scratch* cutter) {
  const int64_t rows = plan.blocks() * Shape::kRows;
  ScoreKey* const lists = cutter->Take<ScoreKey>(rows * (k + TopKBody<Shape>::kWaiting));
  return {lists, cutter->Take<ScoreKey>(plan.batch * (k + kMergeWaiting))};
}

}  // namespace

int64_t ClassTopKScratchBytes(int64_t batch, int64_t num_classes, int64_t k) {
  return WithTileFor(batch, [&](auto shape) {
    using Shape = decltype(shape);
    Scratch counter(nullptr);
    CutParts<Shape>(MakeScanPlan<Shape>(batch, num_classes), k, &counter);
    return counter.bytes();
  });
}

Status ClassTopK(const ClassMatrix& matrix, const Features& features, int64_t k, void* scratch,
                 float* scores, int64_t* ids, Stream stream) {
  return WithTileFor(matrix, features, [&](auto shape) {
    using Shape = decltype(shape);
    using Body = TopKBody<Shape>;
    const ScanPlan plan = MakeScanPlan<Shape>(features.batch, matrix.num_classes);
    Scratch cutter(scratch);
    const Parts parts = CutParts<Shape>(plan, k, &cutter);
    const Status status =
        ForEachBlock(plan.blocks(), Shape::kThreads, static_cast<int>(Body::SharedBytes(k)),
                     Body{matrix, features, k, plan, parts.lists}, stream);
    if (status != kOk) return status;
    const MergeTopKBody merge{
        matrix,      features,   k,      plan, Shape::kRows, k + Body::kWaiting,
        parts.lists, parts.area, scores, ids};
    return ForEachBlock(features.batch, kMergeThreads,
                        static_cast<int>(MergeTopKBody::SharedBytes(k)), merge, stream);
  });
}

}  // namespace cuda
}  // namespace largeout
