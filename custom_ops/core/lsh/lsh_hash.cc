#include "custom_ops/core/lsh/lsh_hash.h"

#include <algorithm>
#include <vector>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/lsh/lsh_hash_functions.h"
#include "custom_ops/core/lsh/lsh_hash_panel.h"
#include "custom_ops/core/lsh/lsh_hash_simd.h"

namespace largeout {
namespace {

class DenseRows {
 public:
  DenseRows(const HashFamily& family, const float* rows, int64_t num_rows)
      : rows_(rows), num_rows_(num_rows), dim_(family.dim), absent_(AbsentFor(family.kind)) {}

  void Fill(int64_t first, int64_t count, float* panel) const {
    const float* from = rows_ + first * dim_;
    if (count == kHashRows) {
      LARGEOUT_SIMD_DISPATCH(FillHashPanel, from, dim_, absent_, panel);
      return;
    }
    std::vector<float> padded(kHashRows * dim_);
    std::copy_n(from, count * dim_, padded.data());
    LARGEOUT_SIMD_DISPATCH(FillHashPanel, padded.data(), dim_, absent_, panel);
  }

  UpcomingRows From(int64_t first) const {
    const int64_t end = std::min<int64_t>(first + kHashRows, num_rows_);
    return {rows_ + first * dim_, (end - first) * dim_};
  }

 private:
  const float* rows_;
  const int64_t num_rows_;
  const int64_t dim_;
  const AbsentNumbers absent_;
};

// Calls visit(first row, number of rows, values) for each panel.
template <class Visit>
void ForPanels(const HashFamily& family, const float* rows, int64_t num_rows,
               const ParallelFor& parallel, const Visit& visit) {
  const DenseRows dense(family, rows, num_rows);
  const int64_t num_panels = CeilDiv(num_rows, kHashRows);
  const int64_t cycles = kHashRows * (NumHashValues(family) + 4 * family.dim);
  parallel(num_panels, cycles, [&](int64_t begin, int64_t end) {
    PanelHasher hasher(family);
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t first = panel * kHashRows;
      const int64_t count = std::min<int64_t>(kHashRows, num_rows - first);
      dense.Fill(first, count, hasher.panel());
      visit(first, count, hasher.Values(dense.From(first + count)));
    }
  });
}

}  // namespace

void HashRows(const HashFamily& family, const float* rows, int64_t num_rows,
              int64_t code_stride, const ParallelFor& parallel, int32_t* codes) {
  const BucketRule rule = RuleOf(family);
  ForPanels(family, rows, num_rows, parallel,
            [&](int64_t first, int64_t count, const int32_t* values) {
              LARGEOUT_SIMD_DISPATCH(JoinValues, rule, values, count, code_stride,
                                     codes + first);
            });
}

void HashQueries(const HashFamily& family, const float* rows, int64_t num_rows,
                 const ParallelFor& parallel, int32_t* codes) {
  const BucketRule rule = RuleOf(family);
  const int64_t num_tables = family.num_tables;
  ForPanels(family, rows, num_rows, parallel,
            [&](int64_t first, int64_t count, const int32_t* values) {
              std::vector<int32_t> by_table(num_tables * kHashRows);
              LARGEOUT_SIMD_DISPATCH(JoinValues, rule, values, count, kHashRows,
                                     by_table.data());
              int32_t* to = codes + first * num_tables;
              for (int64_t row = 0; row < count; ++row) {
                for (int64_t table = 0; table < num_tables; ++table) {
                  *to++ = by_table[table * kHashRows + row];
                }
              }
            });
}

}  // namespace largeout
