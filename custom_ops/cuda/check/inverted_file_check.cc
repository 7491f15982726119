#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "custom_ops/core/class_scan/packed_rows.h"
#include "custom_ops/core/inverted_file/inverted_file_testing.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/inverted_file.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

using Example = testing::InvertedFileExample;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Size {
  int64_t num_classes, dim, batch, num_lists;
};

// An inverted file, with a copy on the GPU.
struct Problem {
  explicit Problem(const Size& size)
      : example(size.num_classes, size.dim, size.batch, size.num_lists) {}

  // Rounds rows, queries and means to small integers: codes and scores are then exact on any
  // instruction set, and many scores are equal.
  void Round() {
    Round(kMostOfRow, &example.rows);
    Round(kMostOfQuery, &example.features);
    for (float& bias : example.bias) bias = std::round(bias);
  }
  void RoundMeans() {
    Round(kMostOfRow, &example.means);
    for (float& bias : example.mean_bias) bias = std::round(bias);
  }
  void Round(float most, std::vector<float>* rows) const {
    for (size_t i = 0; i < rows->size(); ++i) {
      const float rounded = std::round((*rows)[i]);
      (*rows)[i] = i % example.dim == 0 ? most : std::clamp(rounded, -most, most);
    }
  }

  void Fit() { FitLists(example.matrix(), {1, 2}, SerialFor, example.file()); }

  void CopyToGpu() {
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

// The CPU's scores of the classes that were found; NaN for an invalid or repeated id.
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

struct Search {
  Size size;
  int64_t num_probes, k;
};

// Both sides quantise means and queries by the same formula, so the scores of means rarely
// differ. If all lists are searched, these scores do not matter.
constexpr Search kSearches[] = {{{1, 1, 1, 1}, 1, 1},           {{100, 3, 5, 10}, 10, 100},
                                {{3000, 24, 33, 200}, 200, 16}, {{2000, 128, 3, 90}, 500, 2048},
                                {{900, 64, 2100, 20}, 20, 5},   {{700, 16, 0, 30}, 3, 4},
                                {{3000, 24, 40, 200}, 8, 16}};

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
  for (const auto& [size, num_probes, k] : kSearches) {
    Problem in(size);
    in.Fit();
    in.CopyToGpu();
    const OnGpu found(&in, num_probes, k);
    const Example::Found expected = in.example.Search(num_probes, k);
    const std::string text = Text(in, num_probes, k);
    const Status launched = found.Launch(run->stream());
    if (num_probes >= size.num_lists || size.batch == 0) {
      run->Expect(text + " scores", launched, found.scores, expected.scores, 1e-5);
    } else {
      run->ExpectOk(text, launched);
      const double same = ShareOfTheSame(found.ids.Get(), expected.ids, k);
      run->ExpectNear(text + " found by the CPU too", std::vector<double>{same}, {1.0}, 0.02);
    }
    run->ExpectNear(text + " scores of ids", ScoresOf(&in, k, found.ids.Get()),
                    found.scores.Get(), 1e-5);
  }
}

void ExpectFound(Run* run, const std::string& what, Problem* in, int64_t num_probes, int64_t k,
                 const Example::Found& expected) {
  in->CopyToGpu();
  const OnGpu found(in, num_probes, k);
  const std::string text = what + " " + Text(*in, num_probes, k);
  const Status launched = found.Launch(run->stream());
  run->Expect(text + " ids", launched, found.ids, expected.ids);
  run->Expect(text + " scores", launched, found.scores, expected.scores);
}

void ExpectSame(Run* run, const std::string& what, Problem* in, int64_t num_probes, int64_t k) {
  ExpectFound(run, what, in, num_probes, k, in->example.Search(num_probes, k));
}

// Exact equality, also of the order of equal scores.
void CheckWholeNumbers(Run* run) {
  for (const int64_t dim : {3, 16, 50}) {
    Problem in({3000, dim, 41, 300});
    in.Round();
    in.Fit();
    in.RoundMeans();
    for (const int64_t num_probes : {1, 7, 300, 1000}) {
      for (const int64_t k : {1, 16, 700}) ExpectSame(run, "whole", &in, num_probes, k);
    }
  }
}

void CheckBadNumbers(Run* run) {
  Problem in({500, 16, 9, 20});
  Example& e = in.example;
  ExpectSame(run, "not fitted", &in, 4, 3);
  in.Round();
  e.rows[16 * 3 + 2] = NAN;
  e.rows[16 * 4 + 2] = -kInfinity;
  e.bias[5] = kInfinity;
  std::fill_n(e.rows.begin() + 16 * 6, 16, 0.0f);
  e.features[5] = NAN;
  e.features[16 + 5] = kInfinity;
  std::fill_n(e.features.begin() + 16 * 2, 16, 0.0f);
  in.Fit();
  in.RoundMeans();
  e.mean_bias[3] = NAN;
  e.means[16 * 4] = kInfinity;
  ExpectSame(run, "bad numbers", &in, 20, 500);
}

// The k best classes of each query, each repeated times(id) times.
template <class Times>
Example::Found Repeated(const Example::Found& found, int64_t batch, int64_t k,
                        const Times& times) {
  Example::Found all;
  const auto per_query = static_cast<int64_t>(found.ids.size()) / batch;
  for (int64_t query = 0; query < batch; ++query) {
    for (int64_t i = query * per_query; i < (query + 1) * per_query; ++i) {
      all.ids.insert(all.ids.end(), times(found.ids[i]), found.ids[i]);
      all.scores.insert(all.scores.end(), times(found.ids[i]), found.scores[i]);
    }
    all.ids.resize((query + 1) * k, -1);
    all.scores.resize((query + 1) * k, -kInfinity);
  }
  return all;
}

// Invalid offsets and ids are skipped, and a class in two lists is found twice.
void CheckDamagedFiles(Run* run) {
  for (const int64_t num_lists : {20, 3}) {
    Problem in({500, 16, 9, num_lists});
    in.Round();
    in.Fit();
    in.RoundMeans();
    Example& e = in.example;
    const Example::Found whole = e.Search(num_lists, 500);
    if (num_lists == 3) {
      e.offsets = {0, 500, 0, 500};
      ExpectFound(run, "lists that overlap", &in, 3, 1000,
                  Repeated(whole, 9, 1000, [](int64_t) { return 2; }));
      continue;
    }
    std::vector<int> times(500, 1);
    for (const int list : {3, 4, 10, 11}) {
      for (int32_t i = e.offsets[list]; i < e.offsets[list + 1]; ++i) times[e.ids[i]] = 0;
    }
    e.offsets[4] = -9;
    e.offsets[11] = 1 << 30;
    for (int32_t& id : e.ids) {
      if (id % 7 != 0) continue;
      times[id] = 0;
      id = id % 2 == 0 ? -1 - id : 500 + id;
    }
    ExpectFound(run, "damaged", &in, 20, 500,
                Repeated(whole, 9, 500, [&](int64_t id) { return times[id]; }));
  }
}

void TimeSearch(Run* run, const Search& search) {
  const auto& [size, num_probes, k] = search;
  Problem in(size);
  in.Fit();
  in.CopyToGpu();
  const OnGpu found(&in, num_probes, k);
  const double members = 1.0 * num_probes * size.num_classes / size.num_lists;
  const double bytes = 1.0 * size.batch * (members + size.num_lists) * size.dim;
  run->Time(Text(in, num_probes, k), {bytes, 0}, [&] { return found.Launch(run->stream()); });
}

void CheckInvertedFile(Run* run) {
  CheckSearch(run);
  CheckWholeNumbers(run);
  CheckBadNumbers(run);
  CheckDamagedFiles(run);
  if (run->small()) return;
  TimeSearch(run, {{200000, 128, 512, 1800}, 16, 16});
  TimeSearch(run, {{1000000, 128, 4096, 4000}, 16, 16});
}

const bool registered = Register("InvertedFile", CheckInvertedFile);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
