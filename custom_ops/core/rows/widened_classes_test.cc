#include "custom_ops/core/rows/widened_classes.h"

#include <cstring>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

TEST(WidenedClassesGiveTheResultsOfFloatRows) {
  constexpr int64_t kClasses = 9, kDim = 5;
  std::vector<float> rows(kClasses * kDim), bias(kClasses), features(2 * kDim);
  std::vector<uint16_t> rounded(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<float>(i % 11) / 8 - 0.5f;  // exact in bfloat16
    uint32_t bits;
    std::memcpy(&bits, &rows[i], sizeof(bits));
    rounded[i] = static_cast<uint16_t>(bits >> 16);
  }
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = 0.1f * static_cast<float>(i);
  for (size_t i = 0; i < features.size(); ++i) features[i] = static_cast<float>(i) / 3;

  const std::vector<std::vector<int64_t>> all_own = {{8, -1, 3, 3, 0, 8},
                                                     std::vector<int64_t>(6, -1)};
  const std::vector<int64_t> shared_ids = {7, 3, 7, 8};
  for (const auto& ids : all_own) {
    for (const float* biases :
         {static_cast<const float*>(bias.data()), static_cast<const float*>(nullptr)}) {
      const ClassMatrix matrix{rows.data(), biases, kClasses, kDim};
      const OwnClasses own{ids.data(), 2, 3};
      const SharedClasses shared{shared_ids.data(), 4};
      const WidenedClasses widened({nullptr, biases, kClasses, kDim, rounded.data()}, own,
                                   shared, testing::BackwardsFor);
      std::vector<float> logits(6), other_logits(6), sums(2 * kDim), other_sums(2 * kDim);
      RowDots(matrix, features.data(), own, SerialFor, logits.data());
      RowDots(widened.matrix(), features.data(), widened.own(), SerialFor, other_logits.data());
      EXPECT_EQ(logits, other_logits);
      RowDotsFeatureGradient(matrix, own, logits.data(), SerialFor, sums.data());
      RowDotsFeatureGradient(widened.matrix(), widened.own(), logits.data(), SerialFor,
                             other_sums.data());
      EXPECT_EQ(sums, other_sums);
      std::vector<float> gathered(4 * kDim), other_gathered(4 * kDim), b(4), other_b(4);
      GatherRows(matrix, shared, SerialFor, gathered.data(), b.data());
      GatherRows(widened.matrix(), widened.shared(), SerialFor, other_gathered.data(),
                 other_b.data());
      EXPECT_EQ(gathered, other_gathered);
      EXPECT_EQ(b, other_b);
    }
  }
}

}  // namespace
}  // namespace largeout
