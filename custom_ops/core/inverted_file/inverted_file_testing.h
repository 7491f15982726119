// Classes and queries in clusters, with an inverted file, for tests.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_TESTING_H_
#define LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "custom_ops/core/inverted_file/inverted_file.h"

namespace largeout {
namespace testing {

// Classes in clusters of about 10, and queries near clusters.
struct InvertedFileExample {
  InvertedFileExample(int64_t num_classes, int64_t dim, int64_t batch, int64_t num_lists)
      : dim(dim), rows(num_classes * dim), bias(num_classes), features(batch * dim) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    const int64_t num_clusters = num_classes / 10 + 1;
    std::vector<float> centres(num_clusters * dim);
    for (float& value : centres) value = normal(random);
    const auto draw = [&](std::vector<float>* into) {
      for (size_t i = 0; i < into->size(); i += dim) {
        const int64_t cluster = random() % num_clusters;
        for (int64_t k = 0; k < dim; ++k) {
          (*into)[i + k] = centres[cluster * dim + k] + 0.4f * normal(random);
        }
      }
    };
    draw(&rows);
    draw(&features);
    for (float& value : bias) value = 0.1f * normal(random);
    means.resize(num_lists * dim);
    mean_bias.resize(num_lists);
    offsets.resize(num_lists + 1);
    ids.resize(num_classes);
    codes.resize(NumCodes(num_classes, PackedWidth(dim)));
    scales.resize(NumScales(num_classes));
  }

  ClassMatrix matrix() const {
    return {rows.data(), bias.data(), static_cast<int64_t>(ids.size()), dim};
  }

  InvertedFile file() {
    return {static_cast<int64_t>(mean_bias.size()),
            means.data(),
            mean_bias.data(),
            offsets.data(),
            ids.data(),
            {codes.data(), scales.data(), static_cast<int64_t>(ids.size()), PackedWidth(dim)}};
  }

  struct Found {
    std::vector<float> scores;
    std::vector<int64_t> ids;
  };

  Found Search(int64_t num_probes, int64_t k, const ParallelFor& parallel = SerialFor) {
    const int64_t batch = features.size() / dim;
    Found found = {std::vector<float>(batch * k), std::vector<int64_t>(batch * k)};
    SearchLists(file(), {features.data(), batch}, dim, num_probes, k, parallel,
                found.scores.data(), found.ids.data());
    return found;
  }

  // The share of the k highest logits that a search finds.
  double Recall(int64_t num_probes, int64_t k) {
    const int64_t batch = features.size() / dim;
    std::vector<float> scores(batch * k);
    std::vector<int64_t> best(batch * k);
    ClassTopK(matrix(), {features.data(), batch}, k, SerialFor, scores.data(), best.data());
    const Found found = Search(num_probes, k);
    int64_t hits = 0;
    for (int64_t i = 0; i < batch * k; ++i) {
      const auto row = found.ids.begin() + i / k * k;
      hits += std::count(row, row + k, best[i]);
    }
    return static_cast<double>(hits) / (batch * k);
  }

  int64_t dim;
  std::vector<float> rows, bias, features, means, mean_bias, scales;
  std::vector<int32_t> offsets, ids;
  std::vector<uint8_t> codes;
};

}  // namespace testing
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_TESTING_H_
