#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/class_scan/class_scan_filter.h"
#include "custom_ops/core/class_scan/class_scan_simd.h"
#include "custom_ops/core/class_scan/class_scan_tile.h"
#include "custom_ops/core/class_scan/score_order.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// Keeps the k best classes of each example in a heap whose first class is the worst.
class TopKConsumer {
 public:
  TopKConsumer(int64_t num_examples, const ShardTopK& shard)
      : num_examples_(num_examples), shard_(shard) {}

  void BeginPanel(int64_t, int64_t, int64_t) {}
  void EndPanel(int64_t) {}

  // From now on, class i of the logits is ids[i]; or class i itself if `ids` is null.
  void SetIds(const int32_t* ids) { ids_ = ids; }

  template <int T>
  inline __attribute__((always_inline)) void Logits(const float* logits, int64_t example,
                                                    int64_t first) {
    const Floats top = HighestOf<T>(logits);
    if (__builtin_expect(AnyGreater(top, Load(shard_.limits + example)), false)) {
      Insert(logits, T, example, first);
    }
  }

 private:
  __attribute__((noinline)) void Insert(const float* logits, int count, int64_t example,
                                        int64_t first) {
    for (int lane = 0; lane < kLanes && example + lane < num_examples_; ++lane) {
      for (int t = 0; t < count; ++t) {
        const float score = logits[t * kPanelExamples + lane];
        if (!(score > shard_.limits[example + lane])) continue;
        ScoredClass* heap = shard_.best + (example + lane) * shard_.k;
        ReplaceWorst(heap, {score, IdOf(first + t)});
        shard_.limits[example + lane] = heap[0].score;
      }
    }
  }

  void ReplaceWorst(ScoredClass* heap, ScoredClass entry) {
    int64_t at = 0;
    for (int64_t child = 1; child < shard_.k; child = 2 * at + 1) {
      if (child + 1 < shard_.k && ComesBefore(heap[child], heap[child + 1])) ++child;
      if (!ComesBefore(entry, heap[child])) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = entry;
  }

  int32_t IdOf(int64_t place) const {
    return ids_ == nullptr ? static_cast<int32_t>(place) : ids_[place];
  }

  const int64_t num_examples_;
  const ShardTopK shard_;
  const int32_t* ids_ = nullptr;
};

// How many blocks are scanned without the filter after a block most of whose classes passed it.
inline constexpr int kBlocksUnfiltered = 8;

// A pass over classes that scores only those whose bound exceeds the worst score that an
// example keeps.
class FilteredScan {
 public:
  FilteredScan(const ClassMatrix& matrix, const Panels& panels, const ClassFilter& filter,
               const ShardTopK& shard)
      : matrix_(matrix),
        panels_(panels),
        filter_(filter),
        limits_(shard.limits),
        use_(panels.num_examples, shard) {}

  void Run(int64_t begin, int64_t end) {
    int64_t unfiltered = 0;
    for (int64_t first = begin; first < end; first += kBlockClasses) {
      const int64_t last = first + kBlockClasses < end ? first + kBlockClasses : end;
      if (unfiltered > 0) {
        --unfiltered;
        Scan(matrix_, panels_, first, last, use_);
      } else if (2 * ScanBlock(first, last) > kBlockClasses * NumVectors() && has_floats()) {
        unfiltered = kBlocksUnfiltered;
      }
    }
  }

 private:
  // Whether the classes are the rows of the matrix, not the packed rows.
  bool has_floats() const { return matrix_.embeddings != nullptr; }

  int64_t EndOfVector(int64_t example) const {
    return example + kLanes < panels_.num_examples ? example + kLanes : panels_.num_examples;
  }

  int64_t NumVectors() const { return (panels_.num_examples + kLanes - 1) / kLanes; }

  // Returns how many classes were scored, summed over the vectors of examples.
  int64_t ScanBlock(int64_t first, int64_t last) {
    if (filter_.packs_blocks) Pack(first, last);
    const int64_t group = filter_.packs_blocks ? 0 : first / kGroupRows;
    const PassingClasses classes(filter_.rows, group, filter_.queries, limits_);
    int64_t passed = 0;
    for (int64_t example = 0; example < panels_.num_examples; example += kLanes) {
      uint32_t passing[kBlockGroups] = {};
      if (filter_.passes_all) {
        for (uint32_t& bits : passing) bits = (uint32_t{1} << kGroupRows) - 1;
      } else {
        classes.Find(example, EndOfVector(example), passing);
      }
      const int64_t count = Take(passing, first);
      if (count > 0) ScanTaken(example, count);
      passed += count;
    }
    return passed;
  }

  void Pack(int64_t first, int64_t last) {
    const ClassMatrix block = {matrix_.embeddings + first * matrix_.dim,
                               matrix_.bias == nullptr ? nullptr : matrix_.bias + first,
                               last - first, matrix_.dim};
    PackedRows rows = filter_.rows;
    rows.num_rows = last - first;
    PackGroups(block, nullptr, 0, kBlockGroups, rows);
  }

  // Copies rows, biases and ids of the passing classes of a block. Returns their number.
  int64_t Take(const uint32_t* passing, int64_t first) {
    int64_t count = 0;
    for (int g = 0; g < kBlockGroups; ++g) {
      for (uint32_t left = passing[g]; left != 0; left &= left - 1) {
        const int64_t id = first + g * kGroupRows + __builtin_ctz(left);
        if (id >= matrix_.num_classes) break;  // the bounds of the padding are undefined
        TakeRow(id, filter_.embeddings + count * matrix_.dim, filter_.bias + count);
        filter_.ids[count++] = static_cast<int32_t>(id);
      }
    }
    return count;
  }

  void TakeRow(int64_t id, float* row, float* bias) const {
    if (has_floats()) {
      CopyFloats(matrix_.embeddings + id * matrix_.dim, matrix_.dim, row);
      *bias = matrix_.bias == nullptr ? 0.0f : matrix_.bias[id];
    } else {
      UnpackRow(filter_.rows, id, matrix_.dim, row);
      *bias = BiasOfRow(filter_.rows, id);
    }
  }

  // Scores the copied classes for the vector of examples that starts at `example`.
  void ScanTaken(int64_t example, int64_t count) {
    const ClassMatrix taken = {filter_.embeddings, filter_.bias, count, matrix_.dim};
    use_.SetIds(filter_.ids);
    if (panels_.few_examples != nullptr) {
      ScanFewExamples(taken, panels_, 0, count, use_);
    } else {
      const float* columns = PanelColumns(matrix_, panels_, example / kPanelExamples);
      ScanTiles<1>(taken, columns + example % kPanelExamples, example, 0, count, use_);
    }
    use_.SetIds(nullptr);
  }

  const ClassMatrix& matrix_;
  const Panels& panels_;
  const ClassFilter& filter_;
  const float* limits_;
  TopKConsumer use_;
};

}  // namespace

void ScanTopK(const ClassMatrix& matrix, const Panels& panels, int64_t begin, int64_t end,
              const ShardTopK& shard) {
  TopKConsumer use(panels.num_examples, shard);
  Scan(matrix, panels, begin, end, use);
}

void ScanFilteredTopK(const ClassMatrix& matrix, const Panels& panels,
                      const ClassFilter& filter, int64_t begin, int64_t end,
                      const ShardTopK& shard) {
  FilteredScan(matrix, panels, filter, shard).Run(begin, end);
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
