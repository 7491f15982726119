#include "custom_ops/cuda/row_dots_gradient_body.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/host_blocks.h"
#include "custom_ops/cuda/row_sums_testing.h"

namespace largeout {
namespace cuda {
namespace {

struct Problem {
  Problem(int64_t batch, int64_t per_row, int64_t num_shared, int64_t num_classes, int64_t dim)
      : batch(batch),
        per_row(per_row),
        num_classes(num_classes),
        dim(dim),
        own_ids(batch * per_row),
        shared_ids(num_shared),
        features(batch * dim),
        d_logits(batch * per_row),
        d_rows(num_shared * dim),
        d_biases(num_shared) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (auto* values : {&features, &d_logits, &d_rows, &d_biases}) {
      for (float& value : *values) value = normal(random);
    }
    for (int64_t& id : own_ids) id = static_cast<int64_t>(random() % (num_classes + 1)) - 1;
    for (int64_t& id : shared_ids) id = random() % num_classes;
  }

  OwnClasses own() const { return {own_ids.data(), batch, per_row}; }
  SharedClasses shared() const {
    return {shared_ids.data(), static_cast<int64_t>(shared_ids.size())};
  }
  RowDotsGradients gradients() const {
    return {features.data(), d_logits.data(), d_rows.data(), d_biases.data()};
  }
  int64_t rows() const { return RowGradientRows(own(), shared(), num_classes); }

  int64_t batch, per_row, num_classes, dim;
  std::vector<int64_t> own_ids, shared_ids;
  std::vector<float> features, d_logits, d_rows, d_biases;
};

// The segments as the GPU has them: 32 bit offsets, room for every id.
struct Segments {
  explicit Segments(const Problem& in) {
    const int64_t size = in.own().size() + in.shared().size;
    std::vector<int64_t> ids(size);
    RunItems(size, JoinIdsBody{in.own(), in.shared(), ids.data()});
    for (int64_t& id : ids) id = id < 0 || id >= in.num_classes ? in.num_classes : id;
    found = largeout::MergeRows(ids.data(), size, SerialFor);
    count = static_cast<int32_t>(found.size());
    if (count > 0 && found.ids.back() == in.num_classes) --count;
    offsets.assign(found.offsets.begin(), found.offsets.end());
    started = StartedSegments(found);
    run_sums.assign(NumRuns(size) * (in.dim + 1), 1e30f);
    merged = {size,
              &count,
              found.ids.data(),
              offsets.data(),
              found.positions.data(),
              started.data(),
              run_sums.data()};
  }

  largeout::MergedRows found;
  int32_t count;
  std::vector<int32_t> offsets, started;
  std::vector<float> run_sums;
  MergedRows merged;
};

struct Found {
  explicit Found(const Problem& in)
      : ids(in.rows(), 99), d_rows(in.rows() * in.dim, 9.0f), d_biases(in.rows(), 9.0f) {}

  std::vector<int64_t> ids;
  std::vector<float> d_rows, d_biases;
};

Found InBlocks(const Problem& in) {
  Found found(in);
  const Segments segments(in);
  const RowGradient to{found.ids.data(), found.d_rows.data(), found.d_biases.data()};
  const DotTerms terms{segments.merged.positions, in.own(), in.gradients(), in.dim, in.dim + 1};
  RunBlocks(2, kRowThreads, 0, SumRunsBody<DotTerms>{segments.merged, terms});
  RunBlocks(2, kRowThreads, 0, RowGradientBody{segments.merged, terms, in.rows(), to});
  return found;
}

void ExpectSame(const Problem& in, const Found& found) {
  const largeout::MergedRows merged =
      MergeClasses(in.own(), in.shared(), in.num_classes, SerialFor);
  std::vector<float> d_rows(merged.size() * in.dim), d_biases(merged.size());
  largeout::RowDotsRowGradient(merged, in.gradients(), in.own(), in.dim, SerialFor,
                               d_rows.data(), d_biases.data());
  EXPECT_LE(merged.size(), in.rows());
  for (int64_t s = 0; s < in.rows(); ++s) {
    const bool is_class = s < merged.size();
    EXPECT_EQ(found.ids[s], is_class ? merged.ids[s] : -1);
    EXPECT_NEAR(found.d_biases[s], is_class ? d_biases[s] : 0.0f, 1e-4);
    for (int64_t k = 0; k < in.dim; ++k) {
      const int64_t at = s * in.dim + k;
      EXPECT_NEAR(found.d_rows[at], is_class ? d_rows[at] : 0.0f, 1e-4);
    }
  }
}

TEST(RowGradientBodyGivesTheGradientOfTheCpu) {
  for (const int64_t dim : {1, 3, 16, 37, 128, 300}) {
    ExpectSame(Problem(7, 11, 4, 30, dim), InBlocks(Problem(7, 11, 4, 30, dim)));
  }
  for (const Problem& in :
       {Problem(0, 3, 0, 5, 4), Problem(3, 0, 2, 5, 4), Problem(2, 3, 0, 500, 4),
        Problem(40, 50, 9, 7, 5), Problem(200, 3, 70, 2, 33)}) {
    ExpectSame(in, InBlocks(in));
  }
}

TEST(RowGradientBodyLeavesRowsOfZerosWhereThereIsNoClass) {
  Problem in(7, 11, 0, 30, 8);
  std::fill(in.own_ids.begin(), in.own_ids.end(), -1);
  ExpectSame(in, InBlocks(in));
}

TEST(RowGradientBodyPassesOverIdsOutsideTheClasses) {
  Problem in(7, 11, 4, 30, 8), without = in;
  in.own_ids[3] = 30;
  in.own_ids[4] = int64_t{1} << 62;
  in.own_ids[5] = -7;
  without.own_ids[3] = without.own_ids[4] = without.own_ids[5] = -1;
  ExpectSame(without, InBlocks(in));
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
