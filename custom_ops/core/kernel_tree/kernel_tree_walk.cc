#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "custom_ops/core/base/aligned_array.h"
#include "custom_ops/core/base/bfloat16_rows.h"
#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/kernel_tree/kernel_tree.h"
#include "custom_ops/core/kernel_tree/kernel_tree_simd.h"
#include "custom_ops/core/kernel_tree/kernel_tree_walkers.h"

namespace largeout {
namespace {

// The number of queries that are processed together, so that their memory is about 100 MB,
// unless one query needs more.
constexpr int64_t kMostQueries = 1024;
constexpr int64_t kMostWalkers = int64_t{1} << 20;
constexpr int64_t kMostFeatures = int64_t{1} << 25;  // total size of their phi

// The rows of the classes of leaves, in float32. For one thread.
class LeafRows {
 public:
  explicit LeafRows(const KernelTree& tree) : tree_(tree) {}

  // The rows of the last two calls are valid.
  AdjacentRows operator()(int64_t leaf) {
    const ClassMatrix& matrix = tree_.rows;
    const int64_t leaf_size = tree_.shape.leaf_size, first = leaf * leaf_size * matrix.dim;
    const int64_t size = tree_.shape.size(leaf_size, leaf);
    if (matrix.bfloat16_rows == nullptr) return {matrix.embeddings + first, size, matrix.dim};
    std::swap(widened_, older_);
    widened_.resize(leaf_size * matrix.dim);
    WidenRow(matrix.bfloat16_rows + first, size * matrix.dim, widened_.data());
    return {widened_.data(), size, matrix.dim};
  }

 private:
  const KernelTree& tree_;
  std::vector<float> widened_, older_;
};

// A group of queries and their walkers, on their way from the root to the leaves.
class Walk {
 public:
  // Queries [first, first + batch) of all.
  Walk(const KernelTree& tree, const Features& queries, const Labels& labels,
       const TreeDraws& draws, PhiloxSeed seed, const ParallelFor& parallel, int64_t first)
      : tree_(tree),
        queries_(queries),
        labels_(labels),
        draws_(draws),
        seed_(seed),
        parallel_(parallel),
        first_(first),
        phi_(queries.batch * tree.width()),
        unfit_(queries.batch) {
    MakeFeatures();
    MakeWalkers();
  }

  // Returns the first query whose masses are not all finite, or -1.
  int64_t Run(const TreeSample& sample) {
    for (int level = tree_.shape.num_levels - 1; level > 0; --level) Descend(level);
    PickClasses(sample);
    return unfit_ < queries_.batch ? first_ + unfit_ : -1;
  }

 private:
  const float* query(int64_t i) const { return queries_.data + i * tree_.rows.dim; }
  float* phi(int64_t i) const { return phi_.get() + i * tree_.width(); }

  void MakeFeatures() {
    const int64_t dim = tree_.dim(), width = tree_.width();
    parallel_(queries_.batch, width / 4, [&](int64_t begin, int64_t end) {
      std::vector<float> extended(dim, 1.0f);
      for (int64_t i = begin; i < end; ++i) {
        std::copy_n(query(i), tree_.rows.dim, extended.begin());
        LARGEOUT_SIMD_DISPATCH(MultiplyPairs, extended.data(), dim, phi(i));
        std::fill(phi(i) + PlaceOfPair(dim, 0), phi(i) + width, 0.0f);
      }
    });
  }

  // Starts all walkers at the root.
  void MakeWalkers() {
    for (int64_t i = 0; i < queries_.batch; ++i) {
      const auto begin = static_cast<int32_t>(walkers_.size());
      for (int64_t d = draws_.begin(first_ + i); d < draws_.begin(first_ + i + 1); ++d) {
        walkers_.push_back({{}, d, -1, 0});
      }
      for (int64_t place = i * labels_.width; place < (i + 1) * labels_.width; ++place) {
        const int64_t label = labels_.ids[place];
        if (label >= 0) walkers_.push_back({{}, place, static_cast<int32_t>(label), 0});
      }
      const auto end = static_cast<int32_t>(walkers_.size());
      if (begin < end) visits_.push_back({static_cast<int32_t>(i), 0, begin, end});
    }
    next_walkers_.resize(walkers_.size());
  }

  // Multiplies the rows of the node of each part by vector_of(query) of its visits, and calls
  // use(part, products [visits, rows]). Each thread has its own copy of rows_of.
  template <class RowsOf, class VectorOf, class Use>
  void Multiply(const RowsOf& rows_of, const VectorOf& vector_of, int64_t num_products,
                const Use& use) {
    constexpr int64_t kCyclesOfWalker = 150;
    const std::vector<Part> parts = PartsOf(visits_);
    const int64_t num_parts = static_cast<int64_t>(parts.size()) + 1;
    const int64_t visits_per_part = visits_.size() / num_parts + 1;
    const int64_t walkers_per_part = walkers_.size() / num_parts + 1;
    const int64_t cost =
        (visits_per_part + 4) * num_products / 8 + walkers_per_part * kCyclesOfWalker;
    parallel_(parts.size(), cost, [&](int64_t begin, int64_t end) {
      std::vector<float> products;
      const float* vectors[kMostVisits] = {};
      RowsOf own_rows_of = rows_of;
      AdjacentRows rows = own_rows_of(parts[begin].node), ahead = rows;
      for (int64_t p = begin; p < end; ++p, rows = ahead) {
        const Part& part = parts[p];
        const int32_t size = part.end - part.begin;
        for (int32_t i = 0; i < size; ++i) {
          const Visit& visit = visits_[part.begin + i];
          vectors[i] = vector_of(visit.query);
          __builtin_prefetch(&walkers_[visit.begin]);
        }
        products.resize(size * rows.num_rows);
        if (p + 1 < end) ahead = own_rows_of(parts[p + 1].node);
        LARGEOUT_SIMD_DISPATCH(MultiplyRows, rows, vectors, size, ahead, products.data());
        use(part, products.data());
      }
    });
  }

  // The children of a node of the level.
  AdjacentRows Children(int level, int64_t node) const {
    const int64_t child = tree_.shape.first[level - 1] + node * kTreeChildren;
    return {tree_.sums + child * tree_.width(), tree_.shape.num_children(level, node),
            tree_.width()};
  }

  // Each walker of the visit picks one of the masses, or chosen(label) if it is a label.
  template <class Chosen>
  void Pick(const Visit& visit, int level, const Masses& masses, const Chosen& chosen) {
    const bool fit = masses.AreNumbers();
    if (!fit) SetUnfit(visit.query);
    for (int32_t i = visit.begin; i < visit.end; ++i) {
      Walker& walker = walkers_[i];
      if (walker.label >= 0) {
        walker.child = chosen(walker.label);
      } else {
        walker.child = fit ? masses.Pick(TreeUniform(seed_, walker.number, level)) : 0;
      }
      if (fit) walker.way.Take(masses.share(walker.child));
    }
  }

  // Replaces the visits by those of the children that the walkers pick.
  void Descend(int level) {
    std::vector<Visit> children(visits_.size() * kTreeChildren);
    Multiply([&](int64_t node) { return Children(level, node); },
             [&](int64_t query) { return phi(query); }, kTreeChildren * tree_.width(),
             [&](const Part& part, const float* products) {
               Masses masses(kTreeChildren);
               const int num_children = tree_.shape.num_children(level, part.node);
               for (int32_t i = part.begin; i < part.end; ++i, products += num_children) {
                 PickChildren(level, visits_[i], products, &masses);
                 SplitVisit(visits_[i], &children[int64_t{i} * kTreeChildren]);
               }
             });
    visits_ = VisitsOfChildren(visits_, children);
    walkers_.swap(next_walkers_);
  }

  // products: the products of phi with the sums of the children.
  void PickChildren(int level, const Visit& visit, const float* products, Masses* masses) {
    const TreeShape& shape = tree_.shape;
    const int64_t span = shape.span(level - 1), first = int64_t{visit.node} * kTreeChildren;
    masses->Set(shape.num_children(level, visit.node), [&](int64_t c) {
      return KernelMass(tree_.alpha, products[c], shape.size(span, first + c));
    });
    Pick(visit, level, *masses,
         [&](int64_t label) { return static_cast<int32_t>(label / span - first); });
  }

  // Sorts the walkers of a visit by their children into next_walkers_. children
  // [kTreeChildren]: their visits, some without walkers.
  void SplitVisit(const Visit& visit, Visit* children) {
    int32_t counts[kTreeChildren] = {}, places[kTreeChildren];
    for (int32_t i = visit.begin; i < visit.end; ++i) ++counts[walkers_[i].child];
    int32_t place = visit.begin;
    for (int32_t child = 0; child < kTreeChildren; ++child) {
      places[child] = place;
      place += counts[child];
      children[child] = {visit.query, visit.node * kTreeChildren + child, places[child], place};
    }
    for (int32_t i = visit.begin; i < visit.end; ++i) {
      next_walkers_[places[walkers_[i].child]++] = walkers_[i];
    }
  }

  void PickClasses(const TreeSample& sample) {
    const ClassMatrix& matrix = tree_.rows;
    const int64_t leaf_size = tree_.shape.leaf_size;
    Multiply(
        LeafRows(tree_), [&](int64_t i) { return query(i); }, leaf_size * (matrix.dim + 50),
        [&](const Part& part, const float* products) {
          Masses masses(leaf_size);
          const int64_t size = tree_.shape.size(leaf_size, part.node);
          for (int32_t i = part.begin; i < part.end; ++i, products += size) {
            PickInLeaf(visits_[i], products, &masses, sample);
          }
        });
  }

  // logits: the logits of the classes of the leaf, without their biases.
  void PickInLeaf(const Visit& visit, const float* logits, Masses* masses,
                  const TreeSample& sample) {
    const int64_t leaf_size = tree_.shape.leaf_size, first = visit.node * leaf_size;
    const int64_t size = tree_.shape.size(leaf_size, visit.node);
    const double alpha = tree_.alpha;
    if (tree_.rows.bias == nullptr) {
      masses->Set(size, [=](int64_t c) { return LogitMass(alpha, logits[c]); });
    } else {
      const float* bias = tree_.rows.bias + first;
      masses->Set(size,
                  [=](int64_t c) { return LogitMass(alpha, double{logits[c]} + bias[c]); });
    }
    Pick(visit, 0, *masses, [&](int64_t label) { return static_cast<int32_t>(label - first); });
    for (int32_t i = visit.begin; i < visit.end; ++i) {
      const Walker& walker = walkers_[i];
      Write(walker, first + walker.child, sample);
    }
  }

  void Write(const Walker& walker, int64_t id, const TreeSample& sample) const {
    const auto log_q = static_cast<float>(walker.way.Log());
    if (walker.label >= 0) {
      sample.label_log_q[first_ * labels_.width + walker.number] = log_q;
    } else {
      sample.ids[walker.number] = id;
      sample.log_q[walker.number] = log_q;
    }
  }

  void SetUnfit(int32_t query) {
    int64_t before = unfit_;
    while (query < before && !unfit_.compare_exchange_weak(before, query)) {
    }
  }

  const KernelTree& tree_;
  const Features queries_;
  const Labels labels_;
  const TreeDraws& draws_;
  const PhiloxSeed seed_;
  const ParallelFor& parallel_;
  const int64_t first_;
  const AlignedFloats phi_;
  std::vector<Walker> walkers_, next_walkers_;  // grouped by visit
  std::vector<Visit> visits_;                   // ordered by node, then by query
  std::atomic<int64_t> unfit_;
};

}  // namespace

int64_t SampleKernelTree(const KernelTree& tree, const Features& queries, const Labels& labels,
                         const TreeDraws& draws, PhiloxSeed seed, const ParallelFor& parallel,
                         const TreeSample& sample) {
  std::fill_n(sample.label_log_q, queries.batch * labels.width, 0.0f);
  if (queries.batch == 0) return -1;
  const int64_t per_query = CeilDiv(draws.size(), queries.batch) + labels.width;
  const int64_t most =
      std::min(kMostWalkers / per_query, kMostFeatures / std::max<int64_t>(tree.width(), 1));
  const int64_t step = std::clamp<int64_t>(most, 1, kMostQueries);
  for (int64_t first = 0; first < queries.batch; first += step) {
    const int64_t batch = std::min(step, queries.batch - first);
    const Features some = {queries.data + first * tree.rows.dim, batch};
    const Labels of_some = {labels.ids + first * labels.width, labels.width};
    const int64_t unfit = Walk(tree, some, of_some, draws, seed, parallel, first).Run(sample);
    if (unfit >= 0) return unfit;
  }
  return -1;
}

}  // namespace largeout
