#include "custom_ops/core/base/rounding.h"
#include "custom_ops/cuda/class_scan.h"
#include "custom_ops/cuda/class_statistics_body.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace {

StatisticsParts CutParts(const ScanPlan& plan, int64_t width, Scratch* cutter) {
  StatisticsParts parts{};
  parts.total = cutter->Take<double>(plan.shards * plan.batch);
  parts.shift = cutter->Take<float>(plan.shards * plan.batch);
  parts.scores = cutter->Take<float>(plan.batch * width);
  parts.higher = cutter->Take<int>(plan.batch * width);
  return parts;
}

ScanPlan PlanFor(int64_t batch, int64_t num_classes) {
  return WithTileFor(
      batch, [&](auto shape) { return MakeScanPlan<decltype(shape)>(batch, num_classes); });
}

}  // namespace

int64_t ClassStatisticsScratchBytes(int64_t batch, int64_t num_classes, int64_t width) {
  Scratch counter(nullptr);
  CutParts(PlanFor(batch, num_classes), width, &counter);
  return counter.bytes();
}

Status LabelLogits(const ClassMatrix& matrix, const Features& features, const Labels& labels,
                   float* true_logits, Stream stream) {
  return ForEach(features.batch * labels.width,
                 LabelLogitsBody{matrix, features, labels, true_logits}, stream);
}

Status ClassStatistics(const ClassMatrix& matrix, const Features& features,
                       const Labels& labels, void* scratch, float* log_partition,
                       float* true_logits, int64_t* ranks, Stream stream) {
  const ScanPlan plan = PlanFor(features.batch, matrix.num_classes);
  Scratch cutter(scratch);
  const StatisticsParts parts = CutParts(plan, labels.width, &cutter);
  const int64_t num_labels = features.batch * labels.width;

  Status status = kOk;
  if (labels.logits == nullptr) {
    status = LabelLogits(matrix, features, labels, true_logits, stream);
    if (status != kOk) return status;
  }
  status = ForEach(num_labels, LabelScoresBody{labels, parts, true_logits}, stream);
  if (status != kOk) return status;
  status = WithTileFor(matrix, features, [&](auto shape) {
    using Shape = decltype(shape);
    using Body = StatisticsBody<Shape>;
    return ForEachBlock(plan.blocks(), Shape::kThreads, Body::kSharedBytes,
                        Body{matrix, features, labels, plan, parts}, stream);
  });
  if (status != kOk) return status;
  using Partition = LogPartitionBody;
  status = ForEachBlock(CeilDiv(features.batch, Partition::kRows), Partition::kThreads,
                        Partition::kSharedBytes, Partition{plan, parts, log_partition}, stream);
  if (status != kOk) return status;
  return ForEach(num_labels, RanksBody{matrix.num_classes, parts, ranks}, stream);
}

}  // namespace cuda
}  // namespace largeout
