#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "custom_ops/core/inverted_file_testing.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/inverted_file.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

using Example = testing::InvertedFileExample;

// A fitted file that is on the GPU too.
struct Problem {
  Problem(int64_t num_classes, int64_t dim, int64_t batch, int64_t num_lists)
      : example(num_classes, dim, batch, num_lists) {
    FitLists(example.matrix(), {1, 2}, SerialFor, example.file());
    means.Set(example.means);
    mean_bias.Set(example.mean_bias);
    offsets.Set(example.offsets);
    ids.Set(example.ids);
    codes.Set(example.codes);
    scales.Set(example.scales);
    features.Set(example.features);
  }

  InvertedFile file() {
    InvertedFile file = example.file();
    file.means = means.data();
    file.mean_bias = mean_bias.data();
    file.offsets = offsets.data();
    file.ids = ids.data();
    file.rows.codes = codes.data();
    file.rows.scales = scales.data();
    return file;
  }

  int64_t batch() const { return features.size() / example.dim; }

  Example example;
  DeviceArray<float> means{static_cast<int64_t>(example.means.size())};
  DeviceArray<float> mean_bias{static_cast<int64_t>(example.mean_bias.size())};
  DeviceArray<int32_t> offsets{static_cast<int64_t>(example.offsets.size())};
  DeviceArray<int32_t> ids{static_cast<int64_t>(example.ids.size())};
  DeviceArray<uint8_t> codes{static_cast<int64_t>(example.codes.size())};
  DeviceArray<float> scales{static_cast<int64_t>(example.scales.size())};
  DeviceArray<float> features{static_cast<int64_t>(example.features.size())};
};

struct OnGpu {
  OnGpu(Problem* in, int64_t num_probes, int64_t k)
      : in(in),
        search{in->batch(), in->example.dim, num_probes, k},
        scratch(SearchListsScratchBytes(in->file(), search)),
        scores(search.batch * k),
        ids(search.batch * k) {}

  Status Launch(Stream stream) const {
    return SearchLists(in->file(), in->features.data(), search, scratch.data(), scores.data(),
                       ids.data(), stream);
  }

  Problem* const in;
  const ListSearch search;
  const DeviceMemory scratch;
  const DeviceArray<float> scores;
  const DeviceArray<int64_t> ids;
};

std::string Text(const Problem& in, int64_t num_probes, int64_t k) {
  return Sizes({{"classes", static_cast<int64_t>(in.example.ids.size())},
                {"dim", in.example.dim},
                {"lists", static_cast<int64_t>(in.example.mean_bias.size())},
                {"batch", in.batch()},
                {"probes", num_probes},
                {"k", k}});
}

// The scores of the classes that were found by all scores of the CPU; NaN for what is no class
// or comes twice.
std::vector<float> ScoresOf(Problem* in, int64_t k, const std::vector<int64_t>& ids) {
  const auto num_classes = static_cast<int64_t>(in->example.ids.size());
  const Example::Found all = in->example.Search(in->file().num_lists, num_classes);
  std::vector<float> scores_by_id(in->batch() * num_classes, NAN);
  for (size_t i = 0; i < all.ids.size(); ++i) {
    const auto query = static_cast<int64_t>(i) / num_classes;
    if (all.ids[i] >= 0) scores_by_id[query * num_classes + all.ids[i]] = all.scores[i];
  }
  std::vector<float> scores(ids.size(), NAN);
  for (int64_t i = 0; i < static_cast<int64_t>(ids.size()); ++i) {
    const auto row = ids.begin() + i / k * k;
    if (ids[i] == -1) scores[i] = -INFINITY;
    if (ids[i] < 0 || ids[i] >= num_classes || std::count(row, row + k, ids[i]) > 1) continue;
    scores[i] = scores_by_id[i / k * num_classes + ids[i]];
  }
  return scores;
}

struct Size {
  int64_t num_classes, dim, batch, num_lists, num_probes, k;
};

// Means and queries become codes by the same formula on both sides, so that a mean's score
// rarely differs; where all lists are looked at it decides nothing.
constexpr Size kSizes[] = {{1, 1, 1, 1, 1, 1},           {100, 3, 5, 10, 10, 100},
                           {3000, 24, 33, 200, 200, 16}, {2000, 128, 3, 90, 500, 2048},
                           {900, 64, 2100, 20, 20, 5},   {700, 16, 0, 30, 3, 4},
                           {3000, 24, 40, 200, 8, 16}};

double ShareOfTheSame(const std::vector<int64_t>& ids, const std::vector<int64_t>& expected,
                      int64_t k) {
  int64_t same = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(ids.size()); ++i) {
    const auto row = expected.begin() + i / k * k;
    same += std::count(row, row + k, ids[i]);
  }
  return static_cast<double>(same) / static_cast<double>(ids.size());
}

void CheckSearch(Run* run) {
  for (const Size& size : kSizes) {
    Problem in(size.num_classes, size.dim, size.batch, size.num_lists);
    const OnGpu found(&in, size.num_probes, size.k);
    const Example::Found expected = in.example.Search(size.num_probes, size.k);
    const std::string text = Text(in, size.num_probes, size.k);
    const Status launched = found.Launch(run->stream());
    if (size.num_probes >= size.num_lists || size.batch == 0) {
      run->Expect(text + " scores", launched, found.scores, expected.scores, 1e-5);
    } else {
      run->ExpectOk(text, launched);
      const double same = ShareOfTheSame(found.ids.Get(), expected.ids, size.k);
      run->ExpectNear(text + " found by the CPU too", std::vector<double>{same}, {1.0}, 0.02);
    }
    run->ExpectNear(text + " scores of ids", ScoresOf(&in, size.k, found.ids.Get()),
                    found.scores.Get(), 1e-5);
  }
}

void TimeSearch(Run* run, const Size& size) {
  Problem in(size.num_classes, size.dim, size.batch, size.num_lists);
  const OnGpu found(&in, size.num_probes, size.k);
  const double members = 1.0 * size.num_probes * size.num_classes / size.num_lists;
  const double bytes = 1.0 * size.batch * (members + size.num_lists) * size.dim;
  run->Time(Text(in, size.num_probes, size.k), {bytes, 0},
            [&] { return found.Launch(run->stream()); });
}

void CheckInvertedFile(Run* run) {
  CheckSearch(run);
  if (run->small()) return;
  TimeSearch(run, {200000, 128, 512, 1800, 16, 16});
  TimeSearch(run, {1000000, 128, 4096, 4000, 16, 16});
}

const bool registered = Register("InvertedFile", CheckInvertedFile);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
