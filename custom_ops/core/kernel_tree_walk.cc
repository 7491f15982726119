#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "custom_ops/core/aligned_array.h"
#include "custom_ops/core/counting_sort.h"
#include "custom_ops/core/kernel_tree.h"
#include "custom_ops/core/kernel_tree_simd.h"
#include "custom_ops/core/simd_level.h"

namespace largeout {
namespace {

constexpr int64_t kMostQueries = 1024;  // that walk together
constexpr int64_t kMostVisitors = 64;   // of a node that a thread takes at once

// One that goes down the tree: a draw, or a label, whose way is given.
struct Walker {
  int64_t number;  // of the draw, or the place of the label
  int64_t label;   // -1: a draw
  int32_t child;   // where it goes next, or the class in its leaf
  double share;    // product of the shares of the masses, as far as it is not in log_q
  double log_q;

  void Take(double part) {
    share *= part;
    if (share > kLeastShare) return;
    log_q += std::log(share);
    share = 1;
  }
  static constexpr double kLeastShare = 1e-150;  // times the least part is still a number
};

// A query at a node with some walkers: order[begin], ..., order[end - 1].
struct Visit {
  int32_t query;
  int32_t node;
  int32_t begin, end;
};

// Visits [begin, end) of those in the order of their nodes: all at one node.
struct Part {
  int32_t node;
  int32_t begin, end;
};

// The masses of what a walker picks from.
class Masses {
 public:
  void Clear() {
    masses_.clear();
    ends_.clear();
  }
  void Add(double mass) {
    ends_.push_back(total() + mass);
    masses_.push_back(mass);
  }
  double total() const { return ends_.empty() ? 0 : ends_.back(); }
  double share(int64_t i) const { return masses_[i] / total(); }
  // uniform: in [0, 1).
  int32_t Pick(double uniform) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end() - 1, uniform * total());
    return static_cast<int32_t>(end - ends_.begin());
  }

 private:
  std::vector<double> masses_;
  std::vector<double> ends_;  // sums of the masses up to each
};

// Some queries and their walkers, on their way from the root to the leaves.
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
    for (int level = tree_.shape.num_levels - 1; level > 0; --level) {
      GroupByNode(tree_.shape.num_nodes(level));
      ForEachPart(kTreeChildren * tree_.width(), [&](const Part& part, float* products) {
        ToChildren(level, part, products);
      });
      FollowWalkers();
    }
    GroupByNode(tree_.shape.num_leaves());
    ForEachPart(tree_.shape.leaf_size * (tree_.rows.dim + 8),
                [&](const Part& part, float* products) { ToClasses(part, products, sample); });
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

  // All at the root.
  void MakeWalkers() {
    for (int64_t i = 0; i < queries_.batch; ++i) {
      const auto begin = static_cast<int32_t>(walkers_.size());
      for (int64_t d = draws_.begin(first_ + i); d < draws_.begin(first_ + i + 1); ++d) {
        walkers_.push_back({d, -1, 0, 1, 0});
      }
      for (int64_t place = i * labels_.width; place < (i + 1) * labels_.width; ++place) {
        const int64_t label = labels_.ids[place];
        if (label >= 0) walkers_.push_back({place, label, 0, 1, 0});
      }
      const auto end = static_cast<int32_t>(walkers_.size());
      if (begin < end) visits_.push_back({static_cast<int32_t>(i), 0, begin, end});
    }
    order_.resize(walkers_.size());
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<int32_t>(i);
    next_order_ = order_;
  }

  void GroupByNode(int64_t num_nodes) {
    const auto node_of = [&](int64_t i) { return visits_[i].node; };
    CountingSort by_node(Chunks(visits_.size()), num_nodes);
    by_node.Count(node_of);
    by_node_.resize(visits_.size());
    by_node.Place(node_of, [&](int64_t i, int32_t place) { by_node_[place] = visits_[i]; });
    parts_.clear();
    for (int32_t i = 0, size = static_cast<int32_t>(by_node_.size()); i < size; ++i) {
      const int32_t node = by_node_[i].node;
      if (parts_.empty() || parts_.back().node != node ||
          i - parts_.back().begin == kMostVisitors) {
        parts_.push_back({node, i, i});
      }
      parts_.back().end = i + 1;
    }
  }

  // work(part, products), with room for the products of its queries.
  template <class Work>
  void ForEachPart(int64_t macs_per_visit, const Work& work) {
    const int64_t row_products = std::max<int64_t>(kTreeChildren, tree_.shape.leaf_size);
    const int64_t visits_per_part = by_node_.size() / (parts_.size() + 1) + 1;
    parallel_(parts_.size(), visits_per_part * macs_per_visit / 8,
              [&](int64_t begin, int64_t end) {
                const AlignedFloats products(kMostVisitors * row_products);
                for (int64_t i = begin; i < end; ++i) work(parts_[i], products.get());
              });
  }

  // Products of the rows with vector_of(query) of the part's visits.
  template <class VectorOf>
  void Multiply(const AdjacentRows& rows, const Part& part, const VectorOf& vector_of,
                float* products) const {
    const float* vectors[kMostVisitors];
    for (int32_t i = part.begin; i < part.end; ++i) {
      vectors[i - part.begin] = vector_of(by_node_[i].query);
    }
    LARGEOUT_SIMD_DISPATCH(MultiplyRows, rows, vectors, part.end - part.begin, products);
  }

  // Each walker of the visit picks one of the masses, or chosen(label) for a label, and then
  // arrived(walker).
  template <class Chosen, class Arrived>
  void Pick(const Visit& visit, int level, const Masses& masses, const Chosen& chosen,
            const Arrived& arrived) {
    if (!(masses.total() <= std::numeric_limits<double>::max())) return SetUnfit(visit);
    for (int32_t i = visit.begin; i < visit.end; ++i) {
      Walker& walker = walkers_[order_[i]];
      walker.child = walker.label >= 0 ? chosen(walker.label)
                                       : masses.Pick(TreeUniform(seed_, walker.number, level));
      walker.Take(masses.share(walker.child));
      arrived(walker);
    }
  }

  void ToChildren(int level, const Part& part, float* products) {
    const TreeShape& shape = tree_.shape;
    const int64_t span = shape.span(level - 1), child = int64_t{part.node} * kTreeChildren;
    const AdjacentRows sums = {tree_.sums + (shape.first[level - 1] + child) * tree_.width(),
                               shape.num_children(level, part.node), tree_.width()};
    Multiply(sums, part, [&](int64_t i) { return phi(i); }, products);
    Masses masses;
    for (int32_t i = part.begin; i < part.end; ++i, products += sums.num_rows) {
      masses.Clear();
      for (int64_t c = 0; c < sums.num_rows; ++c) {
        masses.Add(KernelMass(tree_.alpha, products[c], shape.size(span, child + c)));
      }
      Pick(
          by_node_[i], level, masses,
          [&](int64_t label) { return static_cast<int32_t>(label / span - child); },
          [](const Walker&) {});
    }
  }

  void ToClasses(const Part& part, float* products, const TreeSample& sample) {
    const ClassMatrix& matrix = tree_.rows;
    const int64_t first = part.node * tree_.shape.leaf_size;
    const int64_t size = tree_.shape.size(tree_.shape.leaf_size, part.node);
    const AdjacentRows classes = {matrix.embeddings + first * matrix.dim, size, matrix.dim};
    Multiply(classes, part, [&](int64_t i) { return query(i); }, products);
    Masses masses;
    for (int32_t i = part.begin; i < part.end; ++i, products += size) {
      masses.Clear();
      for (int64_t c = 0; c < size; ++c) {
        const double logit =
            products[c] + (matrix.bias != nullptr ? matrix.bias[first + c] : 0);
        masses.Add(KernelMass(tree_.alpha, logit * logit, 1));
      }
      Pick(
          by_node_[i], 0, masses,
          [&](int64_t label) { return static_cast<int32_t>(label - first); },
          [&](const Walker& walker) { Write(walker, first + walker.child, sample); });
    }
  }

  void Write(const Walker& walker, int64_t id, const TreeSample& sample) const {
    const auto log_q = static_cast<float>(walker.log_q + std::log(walker.share));
    if (walker.label >= 0) {
      sample.label_log_q[first_ * labels_.width + walker.number] = log_q;
    } else {
      sample.ids[walker.number] = id;
      sample.log_q[walker.number] = log_q;
    }
  }

  // The walkers of the visit go on to any nodes.
  void SetUnfit(const Visit& visit) {
    for (int32_t i = visit.begin; i < visit.end; ++i) walkers_[order_[i]].child = 0;
    int64_t before = unfit_;
    while (visit.query < before && !unfit_.compare_exchange_weak(before, visit.query)) {
    }
  }

  // Visits of the children, query by query.
  void FollowWalkers() {
    std::vector<Visit> next(order_.size());
    std::vector<int32_t> num_next(visits_.size());
    parallel_(visits_.size(), 20 * (order_.size() / (visits_.size() + 1) + 1),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  num_next[i] = SplitVisit(visits_[i], &next[visits_[i].begin]);
                }
              });
    std::vector<Visit> joined;
    for (size_t i = 0; i < visits_.size(); ++i) {
      const auto from = next.begin() + visits_[i].begin;
      joined.insert(joined.end(), from, from + num_next[i]);
    }
    visits_.swap(joined);
    order_.swap(next_order_);
  }

  // Sorts the walkers of a visit by their children into next_order_. Returns how many visits
  // of children there are.
  int32_t SplitVisit(const Visit& visit, Visit* next) {
    int32_t place = visit.begin, num_next = 0;
    for (int32_t child = 0; child < kTreeChildren; ++child) {
      const int32_t begin = place;
      for (int32_t i = visit.begin; i < visit.end; ++i) {
        if (walkers_[order_[i]].child == child) next_order_[place++] = order_[i];
      }
      if (begin == place) continue;
      next[num_next++] = {visit.query, visit.node * kTreeChildren + child, begin, place};
    }
    return num_next;
  }

  const KernelTree& tree_;
  const Features queries_;
  const Labels labels_;
  const TreeDraws& draws_;
  const PhiloxSeed seed_;
  const ParallelFor& parallel_;
  const int64_t first_;
  const AlignedFloats phi_;
  std::vector<Walker> walkers_;
  std::vector<int32_t> order_, next_order_;  // walkers, those of a visit together
  std::vector<Visit> visits_;                // query by query
  std::vector<Visit> by_node_;               // the same, node by node
  std::vector<Part> parts_;
  std::atomic<int64_t> unfit_;
};

}  // namespace

int64_t SampleKernelTree(const KernelTree& tree, const Features& queries, const Labels& labels,
                         const TreeDraws& draws, PhiloxSeed seed, const ParallelFor& parallel,
                         const TreeSample& sample) {
  std::fill_n(sample.label_log_q, queries.batch * labels.width, 0.0f);
  for (int64_t first = 0; first < queries.batch; first += kMostQueries) {
    const int64_t batch = std::min(kMostQueries, queries.batch - first);
    const Features some = {queries.data + first * tree.rows.dim, batch};
    const Labels of_some = {labels.ids + first * labels.width, labels.width};
    const int64_t unfit = Walk(tree, some, of_some, draws, seed, parallel, first).Run(sample);
    if (unfit >= 0) return unfit;
  }
  return -1;
}

}  // namespace largeout
