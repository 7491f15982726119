#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "custom_ops/core/rows/row_dots.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/row_dots.h"
#include "custom_ops/cuda/row_dots_body.h"
#include "custom_ops/cuda/row_dots_gradient.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

constexpr double kTolerance = 5e-5;

struct Size {
  int64_t batch, per_row, num_shared, num_classes, dim;
};

// Empty, one, sizes that no tile divides, all ids equal, fewer and more ids than classes, and
// so many ids that classes have whole runs of terms.
const Size kSizes[] = {{0, 3, 0, 5, 4},        {3, 0, 2, 5, 4},       {1, 1, 1, 1, 1},
                       {40, 50, 9, 1, 5},      {7, 11, 30, 30, 3},    {5, 70, 9, 200, 37},
                       {300, 41, 77, 999, 64}, {130, 9, 33, 40, 128}, {9, 40, 5, 70, 300},
                       {700, 3, 90, 5, 33},    {7, 11, 4, 30, 16},    {2, 3, 0, 500, 4},
                       {2, 600, 0, 40, 8},     {3, 23, 6, 9, 200}};

struct Problem {
  explicit Problem(const Size& in)
      : size(in),
        own_ids(in.batch * in.per_row),
        shared_ids(in.num_shared),
        embeddings(in.num_classes * in.dim),
        bias(in.num_classes),
        features(in.batch * in.dim),
        d_logits(in.batch * in.per_row),
        d_rows(in.num_shared * in.dim),
        d_biases(in.num_shared) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (auto* values : {&embeddings, &bias, &features, &d_logits, &d_rows, &d_biases}) {
      for (float& value : *values) value = normal(random);
    }
    for (int64_t& id : own_ids) id = static_cast<int64_t>(random() % (in.num_classes + 1)) - 1;
    for (int64_t& id : shared_ids) id = static_cast<int64_t>(random() % in.num_classes);
    ForgetGradients();
  }

  bool IsBad(int64_t id) const { return id < 0 || id >= size.num_classes; }

  // Sets the gradients of invalid ids to 0: they are ignored.
  void ForgetGradients() {
    for (size_t i = 0; i < own_ids.size(); ++i) {
      if (own_ids[i] == -1) d_logits[i] = i % 2 == 0 ? NAN : INFINITY;
    }
  }

  // A copy for the CPU, which does not accept invalid ids. An invalid shared id becomes class 0
  // with a gradient of 0.
  Problem Good() const {
    Problem good = *this;
    for (int64_t& id : good.own_ids) id = IsBad(id) ? -1 : id;
    for (int64_t i = 0; i < size.num_shared; ++i) {
      if (!IsBad(shared_ids[i])) continue;
      good.shared_ids[i] = 0;
      std::fill_n(good.d_rows.begin() + i * size.dim, size.dim, 0.0f);
      good.d_biases[i] = 0;
    }
    return good;
  }

  ClassMatrix matrix() const {
    return {embeddings.data(), bias.data(), size.num_classes, size.dim};
  }
  OwnClasses own() const { return {own_ids.data(), size.batch, size.per_row}; }
  SharedClasses shared() const { return {shared_ids.data(), size.num_shared}; }
  RowDotsGradients gradients() const {
    return {features.data(), d_logits.data(), d_rows.data(), d_biases.data()};
  }
  std::string text() const {
    return Sizes({{"batch", size.batch},
                  {"own", size.per_row},
                  {"shared", size.num_shared},
                  {"classes", size.num_classes},
                  {"dim", size.dim}});
  }

  const Size size;
  std::vector<int64_t> own_ids, shared_ids;
  std::vector<float> embeddings, bias, features, d_logits, d_rows, d_biases;
};

// The inputs and results of a problem in device memory.
struct OnGpu {
  explicit OnGpu(const Problem& in, int64_t skipped = 0)
      : size(in.size),
        own_ids(in.own_ids),
        shared_ids(in.shared_ids),
        embeddings(in.embeddings, skipped),
        bias(in.bias),
        features(in.features, skipped),
        d_logits(in.d_logits),
        d_rows(in.d_rows),
        d_biases(in.d_biases),
        logits(own_ids.size()),
        rows(d_rows.size()),
        biases(d_biases.size()),
        d_features(features.size()),
        num_rows(RowGradientRows(own(), shared(), size.num_classes)),
        row_ids(num_rows),
        row_gradient(num_rows * size.dim),
        bias_gradient(num_rows),
        scratch(RowGradientScratchBytes(own(), shared(), size.num_classes, size.dim)) {}

  ClassMatrix matrix() const {
    return {embeddings.data(), bias.data(), size.num_classes, size.dim};
  }
  OwnClasses own() const { return {own_ids.data(), size.batch, size.per_row}; }
  SharedClasses shared() const { return {shared_ids.data(), size.num_shared}; }

  Status Dots(Stream stream) const {
    return RowDots(matrix(), features.data(), own(), logits.data(), stream);
  }
  Status Gather(Stream stream) const {
    return GatherRows(matrix(), shared(), rows.data(), biases.data(), stream);
  }
  Status FeatureGradient(Stream stream) const {
    return RowDotsFeatureGradient(matrix(), own(), d_logits.data(), d_features.data(), stream);
  }
  Status RowGradient(Stream stream) const {
    return RowDotsRowGradient(
        own(), shared(), size.num_classes, size.dim,
        {features.data(), d_logits.data(), d_rows.data(), d_biases.data()}, scratch.data(),
        {row_ids.data(), row_gradient.data(), bias_gradient.data()}, stream);
  }

  const Size size;
  const DeviceArray<int64_t> own_ids, shared_ids;
  const DeviceArray<float> embeddings, bias, features, d_logits, d_rows, d_biases;
  const DeviceArray<float> logits, rows, biases, d_features;
  const int64_t num_rows;
  const DeviceArray<int64_t> row_ids;
  const DeviceArray<float> row_gradient, bias_gradient;
  const DeviceMemory scratch;
};

double BytesOf(const Size& size, int64_t rows) {
  return 4.0 * static_cast<double>(rows) * static_cast<double>(size.dim);
}

// All own and shared classes are distinct, so that no row comes from a cache.
Problem LargeProblem() {
  Problem in({4096, 200, 262144, 1000000, 128});
  for (auto* ids : {&in.own_ids, &in.shared_ids}) {
    for (size_t i = 0; i < ids->size(); ++i) {
      (*ids)[i] = static_cast<int64_t>(i * 611953 % 1000000);
    }
  }
  return in;
}

// A step of sampled softmax: one label per example and shared negatives, both from Zipf's law,
// so that one label in twenty is class 0.
Problem SampledStep() {
  Problem in({4096, 1, 8192, 1000000, 128});
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform;
  for (auto* ids : {&in.own_ids, &in.shared_ids}) {
    for (int64_t& id : *ids) id = static_cast<int64_t>(std::pow(1e6, uniform(random))) - 1;
  }
  return in;
}

std::vector<Problem> Problems() {
  std::vector<Problem> problems(std::begin(kSizes), std::end(kSizes));
  Problem none({7, 11, 0, 30, 8});
  std::fill(none.own_ids.begin(), none.own_ids.end(), -1);
  none.ForgetGradients();
  problems.push_back(none);
  constexpr int64_t kFar = int64_t{1} << 62;
  for (const int64_t id : {int64_t{30}, int64_t{-2}, int64_t{1} << 45, kFar, -kFar}) {
    Problem bad({7, 11, 4, 30, 8});
    bad.own_ids[0] = 0;
    bad.own_ids[13] = bad.shared_ids[2] = id;
    problems.push_back(bad);
  }
  return problems;
}

// The CPU's results; NaN for invalid ids.
struct OnCpu {
  explicit OnCpu(const Problem& in)
      : logits(in.own_ids.size()),
        rows(in.d_rows.size()),
        biases(in.d_biases.size()),
        d_features(in.features.size()) {
    const Problem good = in.Good();
    largeout::RowDots(good.matrix(), in.features.data(), good.own(), SerialFor, logits.data());
    largeout::GatherRows(good.matrix(), good.shared(), SerialFor, rows.data(), biases.data());
    largeout::RowDotsFeatureGradient(good.matrix(), good.own(), in.d_logits.data(), SerialFor,
                                     d_features.data());
    const int64_t dim = in.size.dim;
    for (int64_t i = 0; i < in.own().size(); ++i) {
      if (in.own_ids[i] == -1 || !in.IsBad(in.own_ids[i])) continue;
      logits[i] = NAN;
      std::fill_n(d_features.begin() + i / in.size.per_row * dim, dim, NAN);
    }
    for (int64_t i = 0; i < in.size.num_shared; ++i) {
      if (!in.IsBad(in.shared_ids[i])) continue;
      biases[i] = NAN;
      std::fill_n(rows.begin() + i * dim, dim, NAN);
    }
  }

  std::vector<float> logits, rows, biases, d_features;
};

// The order of the GPU: groups of threads add every n-th class, and the sums of the groups are
// added in order.
std::vector<float> FeatureGradientInOrder(const Problem& in) {
  const int64_t dim = in.size.dim, per_row = in.size.per_row;
  const int groups = kRowDotThreads / GradientColumns(dim);
  std::vector<float> d_features(in.features.size());
  for (int64_t at = 0; at < in.size.batch * dim; ++at) {
    const int64_t begin = at / dim * per_row;
    for (int group = 0; group < groups; ++group) {
      float sum = 0;
      for (int64_t i = begin + group; i < begin + per_row; i += groups) {
        const int64_t id = in.own_ids[i];
        const float weight = in.IsBad(id) ? NAN : in.embeddings[id * dim + at % dim];
        if (id != -1) sum = fmaf(in.d_logits[i], weight, sum);
      }
      d_features[at] += sum;
    }
  }
  return d_features;
}

void CheckRowDots(Run* run) {
  for (const Problem& in : Problems()) {
    const OnCpu expected(in);
    const std::vector<float> in_order = FeatureGradientInOrder(in);
    for (const int64_t skipped : {0, 1}) {
      const OnGpu found(in, skipped);
      run->Expect(in.text() + " logits", found.Dots(run->stream()), found.logits,
                  expected.logits, kTolerance);
      const Status gathered = found.Gather(run->stream());
      run->Expect(in.text() + " rows", gathered, found.rows, expected.rows);
      run->Expect(in.text() + " biases", gathered, found.biases, expected.biases);
      const Status launched = found.FeatureGradient(run->stream());
      run->Expect(in.text() + " d_features", launched, found.d_features, expected.d_features,
                  kTolerance);
      run->Expect(in.text() + " d_features in order", launched, found.d_features, in_order);
    }
  }
  if (run->small()) return;
  const Problem in = LargeProblem();
  const OnGpu large(in);
  const double bytes = BytesOf(in.size, in.own().size());
  run->Time("dots " + in.text(), {bytes, 0}, [&] { return large.Dots(run->stream()); });
  run->Time("d_features " + in.text(), {bytes, 0},
            [&] { return large.FeatureGradient(run->stream()); });
  run->Time("gather " + in.text(), {2 * BytesOf(in.size, in.size.num_shared), 0},
            [&] { return large.Gather(run->stream()); });
}

void CheckRowDotsRowGradient(Run* run) {
  for (const Problem& in : Problems()) {
    const OnGpu found(in);
    const Status launched = found.RowGradient(run->stream());
    const Problem good = in.Good();
    largeout::MergedRows merged = MergeClasses(good.own(), good.shared(), SerialFor);
    std::vector<float> d_rows(found.num_rows * in.size.dim), d_biases(found.num_rows);
    largeout::RowDotsRowGradient(merged, good.gradients(), good.own(), in.size.dim, SerialFor,
                                 d_rows.data(), d_biases.data());
    merged.ids.resize(found.num_rows, -1);
    run->Expect(in.text() + " ids", launched, found.row_ids, merged.ids);
    run->Expect(in.text() + " d_rows", launched, found.row_gradient, d_rows, kTolerance);
    run->Expect(in.text() + " d_biases", launched, found.bias_gradient, d_biases, kTolerance);
  }
  if (run->small()) return;
  for (const Problem& in : {LargeProblem(), SampledStep()}) {
    const OnGpu large(in);
    run->Time(in.text(), {BytesOf(in.size, large.num_rows), 0},
              [&] { return large.RowGradient(run->stream()); });
  }
}

const bool registered = Register("RowDots", CheckRowDots) &&
                        Register("RowDotsRowGradient", CheckRowDotsRowGradient);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
