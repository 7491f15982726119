#include "custom_ops/core/class_scan/class_scan_simd.h"

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/class_scan/class_scan_statistics.h"
#include "custom_ops/core/class_scan/class_scan_tile.h"

namespace largeout {
namespace LARGEOUT_SIMD {

void ScanStatistics(const ClassMatrix& matrix, const Panels& panels, const RankSlots& slots,
                    int64_t begin, int64_t end, const ShardStatistics& shard) {
  StatisticsConsumer use(slots, shard);
  Scan(matrix, panels, begin, end, use);
}

void ScanOneLogit(const ClassMatrix& matrix, const Panels& panels, int64_t example,
                  int64_t class_id, float* logit) {
  const int64_t lane = example % kLanes;
  const float* columns = PanelColumns(matrix, panels, example / kPanelExamples) +
                         (example - lane) % kPanelExamples;
  alignas(64) float tile[kPanelExamples];
  if (panels.few_examples != nullptr) {
    FewExamplesTile<1>(matrix, panels, class_id, tile);
  } else {
    LogitTile<1, 1>(matrix, columns, class_id, tile);
  }
  *logit = tile[lane];
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
