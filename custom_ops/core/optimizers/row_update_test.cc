#include "custom_ops/core/optimizers/row_update.h"

#include <algorithm>
#include <cmath>

#include "custom_ops/core/base/bfloat16_rows.h"
#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/rows/row_runs.h"

namespace largeout {
namespace {

using Matrix = std::vector<float>;

// Row 1 has two gradients, row 0 one, row 2 none.
constexpr int64_t kRows = 3;
const std::vector<int64_t> kIds = {1, 0, 1};

Matrix Ramp(int64_t rows, int64_t dim) {
  Matrix matrix(rows * dim);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = 0.25f * static_cast<float>(i % 7) - 1;
  return matrix;
}

MergedRows Merged() { return MergeRows(kIds.data(), 3, SerialFor); }

// Calls check(dim) for widths below, equal to and above the width of the vectors.
template <typename Check>
void ForAllWidths(const Check& check) {
  testing::ForEachSimdLevel([&] {
    for (int64_t dim : {1, 3, 4, 8, 15, 16, 17, 33, 128}) check(dim);
  });
}

double SummedGradient(const Matrix& values, int64_t dim, int64_t row, int64_t column) {
  double sum = 0;
  for (int64_t i = 0; i < 3; ++i) {
    if (kIds[i] == row) sum += values[i * dim + column];
  }
  return sum;
}

TEST(AdamUpdatesOnlyRowsWithAGradient) {
  ForAllWidths([](int64_t dim) {
    const Matrix start = Ramp(kRows, dim), values = Ramp(3, dim);
    Matrix w = start, m(kRows * dim, 0.5f), v(kRows * dim, 0.25f);
    UpdateRows(
        Merged(), values.data(), dim,
        AdamArguments{w.data(), m.data(), v.data(), nullptr, 1, 0.1f, 0.9, 0.99, 1e-3f, 0.01f},
        SerialFor);
    for (int64_t i = 0; i < dim; ++i) EXPECT_EQ(w[2 * dim + i], start[2 * dim + i]);
    for (int64_t i = 0; i < 2 * dim; ++i) {
      const double g = SummedGradient(values, dim, i / dim, i % dim);
      const double mean = 0.9 * 0.5 + 0.1 * g, square = 0.99 * 0.25 + 0.01 * g * g;
      EXPECT_NEAR(m[i], mean, 1e-6);
      EXPECT_NEAR(v[i], square, 1e-6);
      EXPECT_NEAR(w[i], 0.99 * start[i] - 0.1 * mean / (std::sqrt(square) + 1e-3), 1e-6);
    }
  });
}

TEST(AdamWithoutMomentumMovesByTheGradient) {
  ForAllWidths([](int64_t dim) {
    const Matrix start = Ramp(kRows, dim), values = Ramp(3, dim);
    Matrix w = start, v(kRows * dim, 0.25f);
    std::vector<int64_t> last_step = {6, 3, 3};
    UpdateRows(Merged(), values.data(), dim,
               AdamArguments{w.data(), nullptr, v.data(), last_step.data(), 7, 0.1f, 0.0, 0.99,
                             1e-3f, 0.01f},
               SerialFor);
    for (int64_t i = 0; i < 2 * dim; ++i) {
      const double g = SummedGradient(values, dim, i / dim, i % dim);
      const double decayed = 0.25 * (i < dim ? 1 : std::pow(0.99, 3));
      const double square = 0.99 * decayed + 0.01 * g * g;
      EXPECT_NEAR(v[i], square, 1e-6);
      EXPECT_NEAR(w[i], 0.99 * start[i] - 0.1 * g / (std::sqrt(square) + 1e-3), 1e-6);
    }
  });
}

TEST(AdamDecaysMomentsForSkippedSteps) {
  ForAllWidths([](int64_t dim) {
    const Matrix values(3 * dim, 0.0f);
    Matrix w(kRows * dim), m(kRows * dim, 1.0f), v(kRows * dim, 1.0f);
    std::vector<int64_t> last_step = {6, 3, 3};
    UpdateRows(Merged(), values.data(), dim,
               AdamArguments{w.data(), m.data(), v.data(), last_step.data(), 7, 0.1f, 0.9, 0.99,
                             1e-3f, 0.0f},
               SerialFor);
    EXPECT_EQ(last_step, (std::vector<int64_t>{7, 7, 3}));
    EXPECT_NEAR(m[0], 0.9, 1e-6);
    EXPECT_NEAR(m[dim], std::pow(0.9, 4), 1e-6);
    EXPECT_NEAR(v[dim], std::pow(0.99, 4), 1e-6);
  });
}

TEST(AdagradSquaresTheSummedGradient) {
  ForAllWidths([](int64_t dim) {
    const Matrix values = Ramp(3, dim);
    Matrix w(kRows * dim, 1.0f), a(kRows * dim, 0.1f);
    UpdateRows(Merged(), values.data(), dim,
               AdagradArguments{w.data(), a.data(), 0.1f, 1e-3f, 0.0f}, SerialFor);
    for (int64_t i = 0; i < 2 * dim; ++i) {
      const double g = SummedGradient(values, dim, i / dim, i % dim);
      EXPECT_NEAR(a[i], 0.1 + g * g, 1e-6);
      EXPECT_NEAR(w[i], 1 - 0.1 * g / std::sqrt(0.1 + g * g + 1e-3), 1e-6);
    }
  });
}

TEST(RowwiseAdagradAddsTheMeanSquare) {
  ForAllWidths([](int64_t dim) {
    const Matrix values = Ramp(3, dim);
    Matrix w(kRows * dim, 1.0f), a(kRows, 0.1f);
    UpdateRows(Merged(), values.data(), dim,
               RowwiseAdagradArguments{w.data(), a.data(), 0.1f, 1e-3f, 0.0f}, SerialFor);
    for (int64_t row = 0; row < 2; ++row) {
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) {
        squares += std::pow(SummedGradient(values, dim, row, i), 2);
      }
      EXPECT_NEAR(a[row], 0.1 + squares / dim, 1e-5);
      const double g = SummedGradient(values, dim, row, dim - 1);
      EXPECT_NEAR(w[(row + 1) * dim - 1], 1 - 0.1 * g / std::sqrt(a[row] + 1e-3), 1e-6);
    }
    EXPECT_EQ(a[2], 0.1f);
  });
}

TEST(NesterovMovesByTheNextMomentum) {
  ForAllWidths([](int64_t dim) {
    const Matrix values = Ramp(3, dim);
    Matrix w(kRows * dim, 1.0f), m(kRows * dim, 0.5f);
    UpdateRows(Merged(), values.data(), dim,
               MomentumArguments{w.data(), m.data(), 0.1f, 0.9f, true, 0.0f}, SerialFor);
    for (int64_t i = 0; i < 2 * dim; ++i) {
      const double g = SummedGradient(values, dim, i / dim, i % dim);
      const double momentum = 0.9 * 0.5 - 0.1 * g;
      EXPECT_NEAR(m[i], momentum, 1e-6);
      EXPECT_NEAR(w[i], 1 + 0.9 * momentum - 0.1 * g, 1e-6);
    }
  });
}

TEST(GradientDescentNeedsNoMomentumSlot) {
  ForAllWidths([](int64_t dim) {
    const Matrix values = Ramp(3, dim);
    Matrix w(kRows * dim, 1.0f);
    UpdateRows(Merged(), values.data(), dim,
               MomentumArguments{w.data(), nullptr, 0.1f, 0.0f, false, 0.0f}, SerialFor);
    EXPECT_NEAR(w[dim], 1 - 0.1 * SummedGradient(values, dim, 1, 0), 1e-6);
    EXPECT_EQ(w[2 * dim], 1.0f);
  });
}

TEST(RowsInBfloat16AreUpdatedInFloatAndRounded) {
  ForAllWidths([](int64_t dim) {
    const Matrix start = Ramp(kRows, dim), values = Ramp(3, dim);
    Matrix w = start, a(kRows, 0.1f), other_a = a;
    std::vector<uint16_t> rounded(kRows * dim), expected(kRows * dim);
    const RoundedRows table{rounded.data(), 3, 4}, of_floats{expected.data(), 3, 4};
    for (int64_t row = 0; row < kRows; ++row) {  // exact in bfloat16
      StoreRounded(start.data() + row * dim, dim, row, table);
    }
    UpdateRows(Merged(), values.data(), dim,
               RowwiseAdagradArguments{w.data(), a.data(), 0.1f, 1e-3f, 0.0f}, SerialFor);
    for (int64_t row = 0; row < kRows; ++row) {
      StoreRounded(w.data() + row * dim, dim, row, of_floats);
    }
    UpdateRows(Merged(), values.data(), dim,
               RowwiseAdagradArguments{nullptr, other_a.data(), 0.1f, 1e-3f, 0.0f},
               testing::BackwardsFor, table);
    EXPECT_EQ(rounded, expected);
    EXPECT_EQ(other_a, a);
  });
}

TEST(SumRowsAddsRowsOfEqualIds) {
  ForAllWidths([](int64_t dim) {
    const Matrix values = Ramp(3, dim);
    Matrix sums(2 * dim);
    SumRows(Merged(), values.data(), dim, sums.data(), SerialFor);
    for (int64_t i = 0; i < 2 * dim; ++i) {
      EXPECT_NEAR(sums[i], SummedGradient(values, dim, i / dim, i % dim), 1e-6);
    }
  });
}

// The order of row_runs.h, implemented in the simplest way.
float SumOfRuns(const Matrix& values, int64_t dim, int64_t begin, int64_t end, int64_t column) {
  float sum = 0;
  for (int64_t i = begin; i < end;) {
    float run = 0;
    const int64_t run_end = std::min(end, i + kRunLength);
    for (; i < run_end; ++i) run += values[i * dim + column];
    sum += run;
  }
  return sum;
}

TEST(SumRowsAddsManyGradientsInRuns) {
  ForAllWidths([](int64_t dim) {
    const std::vector<int64_t> counts = {1, 63, 64, 65, 128, 1000};
    std::vector<int64_t> ids;
    for (size_t row = 0; row < counts.size(); ++row) ids.insert(ids.end(), counts[row], row);
    const auto num_ids = static_cast<int64_t>(ids.size());
    Matrix values(num_ids * dim), sums(counts.size() * dim);
    for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f / static_cast<float>(i + 3);
    SumRows(MergeRows(ids.data(), num_ids, SerialFor), values.data(), dim, sums.data(),
            SerialFor);
    int64_t begin = 0;
    for (size_t row = 0; row < counts.size(); begin += counts[row++]) {
      for (int64_t k = 0; k < dim; ++k) {
        EXPECT_EQ(sums[row * dim + k], SumOfRuns(values, dim, begin, begin + counts[row], k));
      }
    }
  });
}

}  // namespace
}  // namespace largeout
