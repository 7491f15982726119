#include "custom_ops/cuda/row_update_body.h"

#include <cmath>
#include <random>
#include <vector>

#include "custom_ops/core/row_update.h"
#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/host_blocks.h"
#include "custom_ops/cuda/row_sums_testing.h"

namespace largeout {
namespace cuda {
namespace {

std::vector<int64_t> RandomIds(int64_t num_rows, int64_t num_ids) {
  std::mt19937 random(11);
  std::vector<int64_t> ids(num_ids);
  for (int64_t& id : ids) id = static_cast<int64_t>(random() % num_rows);
  return ids;
}

// Gradients of rows and what a step changes.
struct Problem {
  Problem(int64_t num_rows, int64_t num_ids, int64_t dim)
      : Problem(num_rows, RandomIds(num_rows, num_ids), dim) {}

  Problem(int64_t num_rows, const std::vector<int64_t>& ids, int64_t dim)
      : num_rows(num_rows), dim(dim), ids(ids) {
    const auto num_ids = static_cast<int64_t>(ids.size());
    std::mt19937 random(12);
    std::normal_distribution<float> normal;
    values.resize(num_ids * dim);
    for (float& value : values) value = normal(random);
    for (std::vector<float>* slot : {&w, &m, &v}) {
      slot->resize(num_rows * dim);
      for (float& value : *slot) value = std::abs(normal(random));
    }
    for (int64_t row = 0; row < num_rows; ++row) last_step.push_back(row % 7);
    on_host = largeout::MergeRows(ids.data(), num_ids, SerialFor);
    offsets.assign(on_host.offsets.begin(), on_host.offsets.end());
    num_segments = static_cast<int32_t>(on_host.size());
    started = StartedSegments(on_host);
    run_sums.assign(NumRuns(num_ids) * dim, 1e30f);
    on_host.ids.resize(num_ids + 1, int64_t{1} << 60);  // no segment: not to be read
  }

  MergedRows merged() {
    return {
        static_cast<int64_t>(ids.size()), &num_segments,  on_host.ids.data(), offsets.data(),
        on_host.positions.data(),         started.data(), run_sums.data()};
  }
  GradientTerms terms() const { return {on_host.positions.data(), values.data(), dim}; }
  // What row_update.cu launches first.
  void SumRuns() {
    RunBlocks(3, kRowThreads, 0, SumRunsBody<GradientTerms>{merged(), terms()});
  }

  largeout::MergedRows merged_on_host() {
    largeout::MergedRows merged = on_host;
    merged.ids.resize(num_segments);
    return merged;
  }

  int64_t num_rows, dim;
  std::vector<int64_t> ids, last_step;
  std::vector<float> values, w, m, v;
  largeout::MergedRows on_host;
  std::vector<int32_t> offsets, started;
  std::vector<float> run_sums;
  int32_t num_segments = 0;
};

const std::vector<Problem> kProblems = {
    {1, 1, 1},     {3, 0, 4},     {1, 40, 5},    {50, 30, 8},   {9, 100, 17},
    {300, 99, 64}, {20, 90, 127}, {80, 60, 128}, {10, 33, 129}, {12, 41, 300},
    {1, 64, 3},    {2, 300, 33},  {5, 1500, 4}};

template <class Rule>
void RunRule(Problem* in, const Rule& rule) {
  in->SumRuns();
  const UpdateRowsBody<Rule> body{in->merged(), in->terms(), rule};
  for (const auto& part : {2, 0}) {  // on a few blocks; on none nothing happens
    RunBlocks(part, kRowThreads, kRowUpdateSharedBytes, body);
  }
}

void ExpectClose(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-5f * (1 + std::abs(expected[i])));
  }
}

const float kRate = 0.1f, kEpsilon = 1e-3f, kWeightDecay = 0.01f, kDecay = 0.9f;
const double kBeta1 = 0.9, kBeta2 = 0.99;
const int64_t kStep = 9;

void ExpectAdamOfTheCpu(bool with_momentum, bool with_last_step) {
  for (Problem host : kProblems) {
    Problem device = host;
    UpdateRows(host.merged_on_host(), host.values.data(), host.dim,
               AdamArguments{host.w.data(), with_momentum ? host.m.data() : nullptr,
                             host.v.data(), with_last_step ? host.last_step.data() : nullptr,
                             kStep, kRate, kBeta1, kBeta2, kEpsilon, kWeightDecay},
               SerialFor);
    RunRule(&device,
            AdamRule{{device.w.data(), with_momentum ? device.m.data() : nullptr,
                      device.v.data(), with_last_step ? device.last_step.data() : nullptr,
                      with_last_step ? &kStep : nullptr, &kRate, &kBeta1, &kBeta2, &kEpsilon,
                      &kWeightDecay},
                     {},
                     0,
                     0});
    ExpectClose(device.w, host.w);
    ExpectClose(device.m, host.m);
    ExpectClose(device.v, host.v);
    EXPECT_EQ(device.last_step, host.last_step);
  }
}

TEST(GpuAdamIsThatOfTheCpu) { ExpectAdamOfTheCpu(true, false); }
TEST(GpuAdamDecaysMomentsForSkippedSteps) { ExpectAdamOfTheCpu(true, true); }
TEST(GpuAdamTakesNoMomentumSlot) {
  ExpectAdamOfTheCpu(false, false);
  ExpectAdamOfTheCpu(false, true);
}

TEST(GpuAdagradIsThatOfTheCpu) {
  for (Problem host : kProblems) {
    Problem device = host;
    UpdateRows(host.merged_on_host(), host.values.data(), host.dim,
               AdagradArguments{host.w.data(), host.v.data(), kRate, kEpsilon, kWeightDecay},
               SerialFor);
    RunRule(
        &device,
        AdagradRule{{device.w.data(), device.v.data(), &kRate, &kEpsilon, &kWeightDecay}, {}});
    ExpectClose(device.w, host.w);
    ExpectClose(device.v, host.v);
  }
}

TEST(GpuRowwiseAdagradIsThatOfTheCpu) {
  for (Problem host : kProblems) {
    host.v.resize(host.num_rows);
    Problem device = host;
    UpdateRows(
        host.merged_on_host(), host.values.data(), host.dim,
        RowwiseAdagradArguments{host.w.data(), host.v.data(), kRate, kEpsilon, kWeightDecay},
        SerialFor);
    RunRule(&device,
            RowwiseAdagradRule{
                {device.w.data(), device.v.data(), &kRate, &kEpsilon, &kWeightDecay}, {}});
    ExpectClose(device.w, host.w);
    ExpectClose(device.v, host.v);
  }
}

void ExpectMomentumOfTheCpu(bool with_slot, bool nesterov) {
  for (Problem host : kProblems) {
    Problem device = host;
    UpdateRows(host.merged_on_host(), host.values.data(), host.dim,
               MomentumArguments{host.w.data(), with_slot ? host.m.data() : nullptr, kRate,
                                 kDecay, nesterov, kWeightDecay},
               SerialFor);
    RunRule(&device, MomentumRule{{device.w.data(), with_slot ? device.m.data() : nullptr,
                                   &kRate, &kDecay, &kWeightDecay, nesterov},
                                  {}});
    ExpectClose(device.w, host.w);
    ExpectClose(device.m, host.m);
  }
}

TEST(GpuMomentumIsThatOfTheCpu) {
  ExpectMomentumOfTheCpu(true, false);
  ExpectMomentumOfTheCpu(true, true);
}
TEST(GpuDescentNeedsNoMomentumSlot) { ExpectMomentumOfTheCpu(false, false); }

// Rows of so many gradients each, one behind the other.
Problem RowsOf(const std::vector<int>& counts) {
  std::vector<int64_t> ids;
  for (size_t row = 0; row < counts.size(); ++row) {
    ids.insert(ids.end(), counts[row], static_cast<int64_t>(row));
  }
  return {static_cast<int64_t>(counts.size()), ids, 3};
}

TEST(GpuSumsAreThoseOfTheCpuAndZerosFollow) {
  std::vector<Problem> problems = kProblems;
  // Whole runs that begin and end at, before and behind multiples of their length.
  problems.push_back(RowsOf({1, 63, 64, 65, 127, 128, 129, 2, 200, 64, 64, 62}));
  problems.push_back(RowsOf({64, 1, 64, 63, 1000, 640}));
  for (Problem& in : problems) {
    const auto num_ids = static_cast<int64_t>(in.ids.size());
    std::vector<float> expected(num_ids * in.dim), sums(num_ids * in.dim, 5.0f);
    largeout::SumRows(in.merged_on_host(), in.values.data(), in.dim, expected.data(),
                      SerialFor);
    std::vector<int32_t> ids(num_ids, 5);
    in.SumRuns();
    const SumRowsBody<int32_t> body{in.merged(), in.terms(), sums.data(), ids.data()};
    RunBlocks(3, kRowThreads, 0, body);
    EXPECT_EQ(sums, expected);
    for (int64_t i = 0; i < num_ids; ++i) {
      EXPECT_EQ(ids[i], i < in.num_segments ? in.on_host.ids[i] : -1);
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
