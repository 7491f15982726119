#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/class_scan/best_scores.h"
#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/class_scan_panels.h"
#include "custom_ops/core/class_scan/packed_rows.h"
#include "custom_ops/core/class_scan/unit_rows.h"

namespace largeout {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr ScoredClass kNone = {kLowest, std::numeric_limits<int32_t>::max()};
constexpr int64_t kMostShards = 256;

// The best classes of each example so far. The order in which threads add classes does not
// matter.
class BestClasses {
 public:
  BestClasses(int64_t num_examples, int64_t k) : k_(k), lists_(num_examples) {}

  // Adds the k classes of each example in `best` [examples, k].
  void Merge(const std::vector<ScoredClass>& best) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t example = 0; example < lists_.size(); ++example) {
      std::vector<ScoredClass>& merged = lists_[example];
      const ScoredClass* from = best.data() + example * k_;
      std::copy_if(from, from + k_, std::back_inserter(merged),
                   [](const ScoredClass& entry) { return entry.id != kNone.id; });
      KeepBest(k_, &merged);
    }
  }

  const std::vector<ScoredClass>& list(int64_t example) const { return lists_[example]; }

 private:
  const int64_t k_;
  std::mutex mutex_;
  std::vector<std::vector<ScoredClass>> lists_;
};

// For smaller batches, or classes of smaller width, packing the classes for a single pass does
// not pay.
constexpr int64_t kPackingBatch = 128, kPackingWidth = 64;

// The examples of the batch in the form of a filter, if a filter pays or is needed.
class FilterQueries {
 public:
  FilterQueries(const Features& features, const ClassMatrix& matrix, const PackedRows* packed,
                const ParallelFor& parallel)
      : packed_(packed), are_needed_(matrix.embeddings == nullptr) {
    const bool pays = features.batch >= kPackingBatch && matrix.dim >= kPackingWidth;
    if (packed != nullptr || pays) codes_.emplace(features, matrix.dim, parallel);
  }
  bool exist() const { return are_needed_ || (codes_ && codes_->AreBounded()); }
  bool are_bounded() const { return codes_->AreBounded(); }
  const PackedQueries& view() const { return codes_->view(); }
  const PackedRows* packed() const { return packed_; }

 private:
  const PackedRows* const packed_;
  const bool are_needed_;
  std::optional<QueryCodes> codes_;
};

// The filter of one thread.
class Filter {
 public:
  Filter(const FilterQueries& queries, int64_t dim)
      : num_packed_(queries.packed() == nullptr ? kBlockClasses : 0),
        codes_(NumCodes(num_packed_, queries.view().width)),
        scales_(NumScales(num_packed_)),
        bounds_(NumBounds(num_packed_)),
        embeddings_(kBlockClasses * dim),
        view_{{codes_.get(), scales_.get(), num_packed_, queries.view().width, bounds_.get()},
              queries.view(),
              /*packs_blocks=*/true,
              /*passes_all=*/!queries.are_bounded(),
              embeddings_.get(),
              bias_,
              ids_} {
    if (queries.packed() == nullptr) return;
    view_.rows = *queries.packed();
    view_.packs_blocks = false;
  }
  const ClassFilter& view() const { return view_; }

 private:
  const int64_t num_packed_;
  const AlignedArray<uint8_t> codes_;
  const AlignedFloats scales_, bounds_, embeddings_;
  float bias_[kBlockClasses];
  int32_t ids_[kBlockClasses];
  ClassFilter view_;
};

void ScanShards(const ClassMatrix& matrix, const PackedFeatures& packed,
                const FilterQueries& queries, const ClassShards& shards, int64_t begin,
                int64_t end, int64_t k, BestClasses* merged) {
  std::vector<ScoredClass> best(packed.panels().num_examples * k, kNone);
  // No class passes the limit of the padding.
  std::vector<float> limits(packed.num_examples(), -kLowest);
  std::fill_n(limits.begin(), packed.panels().num_examples, kLowest);
  const ShardTopK found = {k, best.data(), limits.data()};
  const int64_t first = shards.begin(begin), last = shards.end(end - 1);
  ScoredRows rows(matrix);
  if (queries.exist()) {
    const Filter filter(queries, matrix.dim);
    rows.ForEachPart(first, last, [&](const ClassMatrix& part, int64_t from, int64_t to) {
      LARGEOUT_SIMD_DISPATCH(ScanFilteredTopK, part, packed.panels(), filter.view(), from, to,
                             found);
    });
  } else {
    rows.ForEachPart(first, last, [&](const ClassMatrix& part, int64_t from, int64_t to) {
      LARGEOUT_SIMD_DISPATCH(ScanTopK, part, packed.panels(), from, to, found);
    });
  }
  merged->Merge(best);
}

// For examples with fewer than k logits above -inf: adds the lowest other ids.
std::vector<ScoredClass> FillUp(const ClassMatrix& matrix, const PackedRows* packed,
                                const Panels& panels, int64_t example,
                                std::vector<ScoredClass> best, int64_t k) {
  std::vector<float> unpacked(matrix.embeddings == nullptr ? matrix.dim : 0);
  std::vector<int32_t> ids;
  for (const ScoredClass& entry : best) ids.push_back(entry.id);
  std::sort(ids.begin(), ids.end());
  for (int32_t id = 0; static_cast<int64_t>(best.size()) < k; ++id) {
    if (std::binary_search(ids.begin(), ids.end(), id)) continue;
    float score;
    if (matrix.embeddings == nullptr) {
      UnpackRow(*packed, id, matrix.dim, unpacked.data());
      const float bias = BiasOfRow(*packed, id);
      const ClassMatrix row = {unpacked.data(), &bias, 1, matrix.dim};
      LARGEOUT_SIMD_DISPATCH(ScanOneLogit, row, panels, example, 0, &score);
    } else {
      ScoredRows scored(matrix);
      const ClassMatrix rows = scored.Rows(id, id + 1);
      LARGEOUT_SIMD_DISPATCH(ScanOneLogit, rows, panels, example, id, &score);
    }
    best.push_back({score, id});
  }
  return best;
}

}  // namespace

void ClassTopK(const ClassMatrix& matrix, const Features& features, int64_t k,
               const ParallelFor& parallel, float* scores, int64_t* ids,
               const PackedRows* packed_rows) {
  const PackedFeatures packed(features, matrix.dim, InOrder(features.batch), parallel);
  const ClassShards shards(matrix.num_classes, kMostShards);
  BestClasses best(features.batch, k);
  const FilterQueries queries(features, matrix, packed_rows, parallel);
  const int64_t cost = shards.size() * packed.num_examples() * (matrix.dim / 16 + 1);
  parallel(shards.count(), cost, [&](int64_t begin, int64_t end) {
    ScanShards(matrix, packed, queries, shards, begin, end, k, &best);
  });
  for (int64_t example = 0; example < features.batch; ++example) {
    const auto filled =
        FillUp(matrix, packed_rows, packed.panels(), example, best.list(example), k);
    for (int64_t i = 0; i < k; ++i) {
      scores[example * k + i] = filled[i].score;
      ids[example * k + i] = filled[i].id;
    }
  }
}

}  // namespace largeout
