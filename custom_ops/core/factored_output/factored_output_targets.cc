#include "custom_ops/core/factored_output/factored_output_targets.h"

#include <algorithm>

#include "custom_ops/core/linear_algebra/row_arithmetic.h"
#include "custom_ops/core/rows/row_merge.h"

namespace largeout {

TargetSlopes::TargetSlopes(const FactoredBatch& batch, const double* by_a,
                           const ParallelFor& parallel) {
  std::vector<int64_t> ids;
  std::vector<Slope> all;
  for (int64_t i = 0; i < batch.batch * batch.num_targets; ++i) {
    if (batch.ids[i] < 0) continue;
    ids.push_back(batch.ids[i]);
    all.push_back({i / batch.num_targets, by_a[i]});
  }
  MergedRows merged = MergeRows(ids.data(), static_cast<int64_t>(ids.size()), parallel);
  slopes_.reserve(all.size());
  for (int64_t c = 0; c < merged.size(); ++c) {
    begin_.push_back(static_cast<int64_t>(slopes_.size()));
    for (int64_t i = merged.offsets[c]; i < merged.offsets[c + 1]; ++i) {
      const Slope& slope = all[merged.positions[i]];
      const bool again = i > merged.offsets[c] && slopes_.back().example == slope.example;
      if (again) {
        slopes_.back().value += slope.value;
      } else {
        slopes_.push_back(slope);
      }
    }
  }
  begin_.push_back(static_cast<int64_t>(slopes_.size()));
  classes_ = std::move(merged.ids);
}

template <class Number>
void TargetSlopes::AddGram(double factor, PaddedMatrixOf<Number>* matrix) const {
  for (size_t c = 0; c < classes_.size(); ++c) {
    for (int64_t i = begin_[c]; i < begin_[c + 1]; ++i) {
      Number* row = matrix->row(slopes_[i].example);
      const double scaled = factor * slopes_[i].value;
      for (int64_t k = begin_[c]; k < begin_[c + 1]; ++k) {
        row[slopes_[k].example] += scaled * slopes_[k].value;
      }
    }
  }
}

void TargetSlopes::AddGramTimes(double factor, const PaddedMatrix& matrix,
                                PaddedMatrix* to) const {
  std::vector<double> sum(matrix.width());
  for (size_t c = 0; c < classes_.size(); ++c) {
    std::fill(sum.begin(), sum.end(), 0.0);
    AddRowsOfClass(c, factor, matrix, sum.data());
    for (int64_t i = begin_[c]; i < begin_[c + 1]; ++i) {
      AddScaledRow(slopes_[i].value, sum.data(), matrix.width(), to->row(slopes_[i].example));
    }
  }
}

template <class Number>
void TargetSlopes::AddRowsOfClass(int64_t place, double factor,
                                  const PaddedMatrixOf<Number>& matrix, double* to) const {
  for (int64_t i = begin_[place]; i < begin_[place + 1]; ++i) {
    AddScaledRow(factor * slopes_[i].value, matrix.row(slopes_[i].example), matrix.width(), to);
  }
}

template <class Number>
void MultiplyTargets(const FactoredState<Number>& state, const FactoredBatch& batch,
                     const double* by_a, const ParallelFor& parallel, double* row_sums,
                     PaddedMatrix* products) {
  parallel(batch.batch, (batch.num_targets + 1) * state.width, [&](int64_t begin, int64_t end) {
    std::vector<double> row(state.width);
    for (int64_t j = begin; j < end; ++j) {
      double* product = products->row(j);
      std::fill_n(product, state.width, 0.0);
      row_sums[j] = 0;
      for (int64_t i = j * batch.num_targets; i < (j + 1) * batch.num_targets; ++i) {
        if (batch.ids[i] < 0) continue;
        const double slope = by_a[i];
        CopyRow(state, batch.ids[i], row.data());
        AddScaledRow(slope, row.data(), state.width, product);
        row_sums[j] += slope;
      }
    }
  });
}

template void TargetSlopes::AddGram(double, PaddedMatrixOf<float>*) const;
template void TargetSlopes::AddGram(double, PaddedMatrixOf<double>*) const;
template void TargetSlopes::AddRowsOfClass(int64_t, double, const PaddedMatrixOf<float>&,
                                           double*) const;
template void TargetSlopes::AddRowsOfClass(int64_t, double, const PaddedMatrixOf<double>&,
                                           double*) const;
template void MultiplyTargets(const FactoredState<float>&, const FactoredBatch&, const double*,
                              const ParallelFor&, double*, PaddedMatrix*);
template void MultiplyTargets(const FactoredState<double>&, const FactoredBatch&, const double*,
                              const ParallelFor&, double*, PaddedMatrix*);

}  // namespace largeout
