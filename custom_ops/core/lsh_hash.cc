#include "custom_ops/core/lsh_hash.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "custom_ops/core/aligned_array.h"
#include "custom_ops/core/lsh_hash_functions.h"
#include "custom_ops/core/lsh_hash_simd.h"
#include "custom_ops/core/simd_level.h"

namespace largeout {
namespace {

AbsentNumbers AbsentFor(HashKind kind) {
  switch (kind) {
    case HashKind::kWta:
      return AbsentNumbers::kNan;
    case HashKind::kDwta:
      return AbsentNumbers::kNanAndZero;
    default:
      return AbsentNumbers::kNone;
  }
}

// What stands in the panel for a number of a row.
float InPanel(float number, AbsentNumbers absent) {
  const bool is_absent = absent == AbsentNumbers::kNan          ? !(number == number)
                         : absent == AbsentNumbers::kNanAndZero ? !(number > 0 || number < 0)
                                                                : false;
  return is_absent ? -std::numeric_limits<float>::infinity() : number;
}

// Calls found(j) on other values' numbers j < num_values, in an order that
// depends on h and num_values only, until it returns true. Visits all of them.
template <class Found>
void ProbeValues(int64_t h, int64_t num_values, const Found& found) {
  uint64_t mask = 1;
  while (mask + 1 < static_cast<uint64_t>(num_values)) mask = 2 * mask + 1;
  const uint64_t mixed = static_cast<uint64_t>(h + 1) * 0x9E3779B97F4A7C15u;
  const uint64_t start = mixed >> 40, stride = mixed >> 8 | 1;
  for (uint64_t probe = 0; probe <= mask; ++probe) {
    const int64_t j = static_cast<int64_t>((start + probe * stride) & mask);
    if (j < num_values && found(j)) return;
  }
}

// Gives the empty values of one row, `stride` apart, those of other ones.
void BorrowValues(int64_t num_values, int64_t stride, int32_t* values) {
  std::vector<int32_t> own(num_values);
  for (int64_t h = 0; h < num_values; ++h) own[h] = values[h * stride];
  const bool all_empty = *std::max_element(own.begin(), own.end()) == kNoValue;
  for (int64_t h = 0; h < num_values; ++h) {
    if (own[h] != kNoValue) continue;
    values[h * stride] = 0;
    if (all_empty) continue;
    ProbeValues(h, num_values, [&](int64_t j) {
      if (own[j] == kNoValue) return false;
      values[h * stride] = own[j];
      return true;
    });
  }
}

// Hashes kHashRows rows at a time. One a thread.
class PanelHasher {
 public:
  explicit PanelHasher(const HashFamily& family)
      : family_(family),
        num_values_(NumHashValues(family)),
        panel_size_(PanelDim() * kHashRows),
        panel_(panel_size_),
        scratch_(family.kind == HashKind::kSimHash ? 2 * panel_size_ : 0),
        values_(num_values_ * kHashRows) {
    std::fill_n(panel_.get(), panel_size_, InPanel(0, AbsentFor(family.kind)));
  }

  // All zero at first; coordinates from family.dim on must remain so.
  float* panel() { return panel_.get(); }

  // Hashes the panel.
  const int32_t* Values() {
    bool any_empty = false;
    if (family_.kind == HashKind::kSimHash) {
      const ProjectionFunctions functions = {family_.functions, PanelDim(), num_values_};
      LARGEOUT_SIMD_DISPATCH(ProjectionValues, functions, panel_.get(), scratch_.get(),
                             values_.get());
    } else {
      const BinFunctions functions = {family_.functions,
                                      static_cast<int32_t>(BinWidth(family_)), num_values_,
                                      family_.kind == HashKind::kDwta};
      LARGEOUT_SIMD_DISPATCH(BinValues, functions, panel_.get(), values_.get(), &any_empty);
    }
    for (int row = 0; any_empty && row < kHashRows; ++row) {
      BorrowValues(num_values_, kHashRows, values_.get() + row);
    }
    return values_.get();
  }

 private:
  int64_t PanelDim() const {
    return family_.kind == HashKind::kSimHash ? PaddedDim(family_) : family_.dim;
  }

  const HashFamily& family_;
  const int64_t num_values_;
  const int64_t panel_size_;
  const AlignedFloats panel_, scratch_;
  const AlignedArray<int32_t> values_;
};

class DenseRows {
 public:
  DenseRows(const HashFamily& family, const float* rows)
      : rows_(rows), dim_(family.dim), absent_(AbsentFor(family.kind)) {}

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

  void Clear(int64_t, int64_t, float*) const {}

 private:
  const float* rows_;
  const int64_t dim_;
  const AbsentNumbers absent_;
};

class SparseRowsInPanels {
 public:
  SparseRowsInPanels(const HashFamily& family, const SparseRows& rows)
      : rows_(rows), absent_(AbsentFor(family.kind)) {}

  void Fill(int64_t first, int64_t count, float* panel) const {
    ForNumbers(first, count, [&](int64_t i, int64_t place) {
      panel[place] = InPanel(rows_.values[i], absent_);
    });
  }

  void Clear(int64_t first, int64_t count, float* panel) const {
    const float zero = InPanel(0, absent_);
    ForNumbers(first, count, [&](int64_t, int64_t place) { panel[place] = zero; });
  }

 private:
  template <class Visit>
  void ForNumbers(int64_t first, int64_t count, const Visit& visit) const {
    for (int64_t row = 0; row < count; ++row) {
      const int64_t* splits = rows_.row_splits + first + row;
      for (int64_t i = splits[0]; i < splits[1]; ++i) {
        visit(i, rows_.ids[i] * kHashRows + row);
      }
    }
  }

  const SparseRows rows_;
  const AbsentNumbers absent_;
};

// Calls visit(first row, number of rows, values) panel by panel.
template <class Rows, class Visit>
void ForPanels(const HashFamily& family, const Rows& rows, int64_t num_rows,
               const ParallelFor& parallel, const Visit& visit) {
  const int64_t num_panels = (num_rows + kHashRows - 1) / kHashRows;
  const int64_t cycles = kHashRows * (NumHashValues(family) + 4 * family.dim);
  parallel(num_panels, cycles, [&](int64_t begin, int64_t end) {
    PanelHasher hasher(family);
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t first = panel * kHashRows;
      const int64_t count = std::min<int64_t>(kHashRows, num_rows - first);
      rows.Fill(first, count, hasher.panel());
      visit(first, count, hasher.Values());
      rows.Clear(first, count, hasher.panel());
    }
  });
}

BucketRule RuleOf(const HashFamily& family) {
  const int64_t joined_bits = int64_t{family.num_hashes} * ValueBits(family);
  return {family.num_hashes, family.num_tables, ValueBits(family),
          static_cast<int>(std::min<int64_t>(joined_bits, 32)), family.bits};
}

template <class Rows>
void WriteValues(const HashFamily& family, const Rows& rows, int64_t num_rows,
                 const ParallelFor& parallel, int32_t* values) {
  const int64_t num_hashes = family.num_hashes, num_tables = family.num_tables;
  ForPanels(family, rows, num_rows, parallel,
            [&](int64_t first, int64_t count, const int32_t* of_panel) {
              int32_t* to = values + first * num_hashes * num_tables;
              for (int64_t row = 0; row < count; ++row) {
                for (int64_t table = 0; table < num_tables; ++table) {
                  for (int64_t i = 0; i < num_hashes; ++i) {
                    *to++ = of_panel[(i * num_tables + table) * kHashRows + row];
                  }
                }
              }
            });
}

}  // namespace

void HashRows(const HashFamily& family, const float* rows, int64_t num_rows,
              int64_t code_stride, const ParallelFor& parallel, int32_t* codes) {
  const BucketRule rule = RuleOf(family);
  ForPanels(family, DenseRows(family, rows), num_rows, parallel,
            [&](int64_t first, int64_t count, const int32_t* values) {
              LARGEOUT_SIMD_DISPATCH(JoinValues, rule, values, count, code_stride,
                                     codes + first);
            });
}

void HashValues(const HashFamily& family, const float* rows, int64_t num_rows,
                const ParallelFor& parallel, int32_t* values) {
  WriteValues(family, DenseRows(family, rows), num_rows, parallel, values);
}

void HashValues(const HashFamily& family, const SparseRows& rows, int64_t num_rows,
                const ParallelFor& parallel, int32_t* values) {
  WriteValues(family, SparseRowsInPanels(family, rows), num_rows, parallel, values);
}

}  // namespace largeout
