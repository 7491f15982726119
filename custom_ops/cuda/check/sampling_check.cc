#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "custom_ops/core/sampling/cumulative_table.h"
#include "custom_ops/core/sampling/integer_masses.h"
#include "custom_ops/core/sampling/log_uniform_distribution.h"
#include "custom_ops/core/sampling/sampling.h"
#include "custom_ops/core/sampling/uniform_distribution.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/sampling.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

using Ids = std::vector<int64_t>;
using Floats = std::vector<float>;

struct Size {
  int64_t num_classes, num_sampled;
  int64_t seed[2] = {123456789, -987654321};

  PhiloxSeed Seed() const {
    return {static_cast<uint64_t>(seed[0]), static_cast<uint64_t>(seed[1])};
  }
};

constexpr Size kSizes[] = {{1, 1},         {2, 2},          {17, 16, {0, 0}},
                           {1000, 1},      {1000, 257},     {1000, 1000, {-1, INT64_MIN}},
                           {1001, 1000},   {8193, 8192},    {300, 299, {1, 2}},
                           {1000000, 999}, {10000000, 8192}};

std::string Text(const Size& size) {
  return Sizes({{"classes", size.num_classes}, {"sampled", size.num_sampled}});
}

// The arrays of a sampler on the GPU.
struct Outputs {
  explicit Outputs(const Size& size)
      : true_classes(Ids{-1, 0, size.num_classes - 1, size.num_classes, -2}),
        sampled(size.num_sampled),
        seed(Ids{size.seed[0], size.seed[1]}),
        true_count(true_classes.size()),
        sampled_count(size.num_sampled),
        scratch(UniqueSampleScratchBytes(size.num_sampled)) {}

  SampledArrays arrays() const {
    return {true_classes.data(), true_classes.size(), sampled.size(),
            sampled.data(),      true_count.data(),   sampled_count.data()};
  }

  const DeviceArray<int64_t> true_classes, sampled, seed;
  const DeviceArray<float> true_count, sampled_count;
  const DeviceMemory scratch;
};

// count(c): the expected count on the CPU.
template <class Count>
void ExpectSample(Run* run, const std::string& what, Status launched, const Outputs& outputs,
                  const Ids& ids, int64_t num_classes, const Count& count) {
  run->Expect(what + " ids", launched, outputs.sampled, ids);
  Floats counts;
  for (int64_t id : ids) counts.push_back(count(id));
  run->Expect(what + " counts", launched, outputs.sampled_count, counts);
  run->Expect(what + " true counts", launched, outputs.true_count,
              Floats{1.0f, count(0), count(num_classes - 1), NAN, NAN});
}

template <class Distribution, class Launcher>
void CheckClosedForm(Run* run, const Launcher& launcher) {
  for (const Size& size : kSizes) {
    for (const bool unique : {false, true}) {
      const std::string what = Text(size) + (unique ? " unique" : "");
      const Outputs outputs(size);
      const auto launch = [&] {
        return launcher(outputs.arrays(), size.num_classes, unique, outputs.seed.data(),
                        outputs.scratch.data(), run->stream());
      };
      const Distribution distribution(size.num_classes, unique ? size.num_sampled : 1);
      Ids ids(size.num_sampled);
      (unique ? SampleWithoutReplacement<Distribution>
              : SampleWithReplacement<Distribution>)(distribution, size.num_sampled,
                                                     size.Seed(), SerialFor, ids.data());
      const float draws = unique ? 1 : size.num_sampled;
      ExpectSample(run, what, launch(), outputs, ids, size.num_classes,
                   [&](int64_t c) { return draws * LengthInStrata(distribution, c); });
      if (!run->small() && size.num_sampled == 8192) run->Time(what, {}, launch);
    }
  }
}

void CheckUniform(Run* run) { CheckClosedForm<UniformDistribution>(run, UniformSample); }

void CheckLogUniform(Run* run) {
  CheckClosedForm<LogUniformDistribution>(run, LogUniformSample);
}

// A table from a file may be damaged: classes are still drawn, with counts of NaN.
void ExpectClassesAndNan(Run* run, const std::string& what, Status launched,
                         const Outputs& outputs, int64_t num_classes) {
  run->Expect(what + " counts", launched, outputs.sampled_count,
              Floats(outputs.sampled.size(), NAN));
  Ids outside;
  for (const int64_t id : outputs.sampled.Get()) {
    if (id < 0 || id >= num_classes) outside.push_back(id);
  }
  run->ExpectNear(what + " ids that are no classes", outside, {});
}

void CheckDamagedAlias(Run* run) {
  const Outputs outputs({2, 20});
  const DeviceArray<AliasSlot> slots(std::vector<AliasSlot>{{0, 2}, {0, -5}});
  const DeviceArray<float> probability(Floats{0.5f, 0.5f});
  const Status launched = AliasSample(outputs.arrays(), slots.data(), probability.data(), 2,
                                      outputs.seed.data(), run->stream());
  ExpectClassesAndNan(run, "damaged slots", launched, outputs, 2);
}

void CheckPivotalForAnotherNumber(Run* run) {
  const std::vector<double> weights = {1, 2, 3, 4, 5};
  Ids cumulative(6), index(4);
  IntegerMasses(weights.data(), 5, 2, &cumulative[1]);
  BuildCumulativeTable(&cumulative[1], 5, 3, cumulative.data(), index.data());
  const DeviceArray<int64_t> gpu_cumulative(cumulative), gpu_index(index);
  const Outputs outputs({5, 3});
  const Status launched =
      PivotalSample(outputs.arrays(), gpu_cumulative.data(), 5, gpu_index.data(), 3,
                    outputs.seed.data(), outputs.scratch.data(), run->stream());
  ExpectClassesAndNan(run, "a table for two draws, three times", launched, outputs, 5);
}

std::vector<double> Weights(int64_t num_classes) {
  std::vector<double> weights(num_classes);
  for (int64_t c = 0; c < num_classes; ++c) weights[c] = 1 + c * c % 9973;
  if (num_classes > 7) weights[7] = 1e9;  // always in a sample without replacement
  return weights;
}

void CheckAlias(Run* run) {
  CheckDamagedAlias(run);
  for (const Size& size : kSizes) {
    const int64_t n = size.num_classes;
    Ids masses(n), ids(size.num_sampled);
    std::vector<AliasSlot> slots(n);
    Floats probability(n);
    IntegerMasses(Weights(n).data(), n, 1, masses.data());
    BuildAliasTable(masses.data(), n, slots.data());
    for (int64_t c = 0; c < n; ++c) {
      probability[c] = static_cast<float>(static_cast<double>(masses[c]) / kAliasTotal);
    }
    for (int64_t i = 0; i < size.num_sampled; ++i) {
      ids[i] = DrawFromAliasTable(slots.data(), n, BitsOfDraw(size.Seed(), i));
    }
    const DeviceArray<AliasSlot> gpu_slots(slots);
    const DeviceArray<float> gpu_probability(probability);
    const Outputs outputs(size);
    const auto launch = [&] {
      return AliasSample(outputs.arrays(), gpu_slots.data(), gpu_probability.data(), n,
                         outputs.seed.data(), run->stream());
    };
    ExpectSample(run, Text(size), launch(), outputs, ids, n,
                 [&](int64_t c) { return size.num_sampled * probability[c]; });
    if (!run->small() && size.num_sampled == 8192) run->Time(Text(size), {}, launch);
  }
}

void CheckPivotal(Run* run) {
  CheckPivotalForAnotherNumber(run);
  for (const Size& size : kSizes) {
    const int64_t n = size.num_classes, m = size.num_sampled, num_buckets = n / 4 + 1;
    Ids cumulative(n + 1), index(num_buckets + 1), ids(m);
    IntegerMasses(Weights(n).data(), n, m, &cumulative[1]);
    BuildCumulativeTable(&cumulative[1], n, num_buckets, cumulative.data(), index.data());
    const CumulativeTable table(cumulative.data(), n, index.data(), num_buckets, m);
    SampleWithoutReplacement(table, m, size.Seed(), SerialFor, ids.data());
    const DeviceArray<int64_t> gpu_cumulative(cumulative), gpu_index(index);
    const Outputs outputs(size);
    const auto launch = [&] {
      return PivotalSample(outputs.arrays(), gpu_cumulative.data(), n, gpu_index.data(),
                           num_buckets, outputs.seed.data(), outputs.scratch.data(),
                           run->stream());
    };
    ExpectSample(run, Text(size), launch(), outputs, ids, n,
                 [&](int64_t c) { return LengthInStrata(table, c); });
    if (!run->small() && m == 8192) run->Time(Text(size), {}, launch);
  }
}

const bool registered =
    Register("UniformSample", CheckUniform) && Register("LogUniformSample", CheckLogUniform) &&
    Register("AliasSample", CheckAlias) && Register("PivotalSample", CheckPivotal);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
