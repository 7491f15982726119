// The walkers that descend a kernel tree, and their positions, for kernel_tree_walk.cc.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_WALKERS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_WALKERS_H_

#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "custom_ops/core/kernel_tree/kernel_tree_shape.h"

namespace largeout {

inline constexpr int64_t kMostVisits = 64;  // of a node, processed at once by a thread

// A walker descends the tree: it is a draw, or a label, whose path is given.
struct Walker {
  LogOfShares way;
  int64_t number;  // number of the draw, or place of the label
  int32_t label;   // -1 for a draw
  int32_t child;   // the child that it picks, or the class in its leaf
};

// A query at a node with walkers begin, ..., end - 1.
struct Visit {
  int32_t query;
  int32_t node;
  int32_t begin, end;
};

// Visits begin, ..., end - 1, all of the same node.
struct Part {
  int32_t node;
  int32_t begin, end;
};

// The masses that a walker chooses from. For one thread.
class Masses {
 public:
  explicit Masses(int64_t most) : masses_(most), ends_(most) {}

  // Sets the masses to mass(0), ..., mass(size - 1).
  template <class Mass>
  void Set(int64_t size, const Mass& mass) {
    size_ = size;
    for (int64_t i = 0; i < size; ++i) masses_[i] = mass(i);
    std::partial_sum(masses_.begin(), masses_.begin() + size, ends_.begin());
  }
  bool AreNumbers() const { return total() <= std::numeric_limits<double>::max(); }
  double share(int64_t i) const { return masses_[i] / total(); }
  // Returns the first mass whose end is above `uniform`, in [0, 1), times the total. It has no
  // branches, because they could not be predicted.
  int32_t Pick(double uniform) const {
    const double at = uniform * total();
    const double* end = ends_.data();
    for (int64_t left = size_; left > 1; left -= left / 2) {
      end += end[left / 2 - 1] <= at ? left / 2 : 0;
    }
    return static_cast<int32_t>(end - ends_.data());
  }

 private:
  double total() const { return ends_[size_ - 1]; }

  int64_t size_ = 0;
  std::vector<double> masses_;
  std::vector<double> ends_;  // cumulative sums of the masses
};

// visits: grouped by node.
inline std::vector<Part> PartsOf(const std::vector<Visit>& visits) {
  std::vector<Part> parts;
  for (int32_t i = 0, size = static_cast<int32_t>(visits.size()); i < size; ++i) {
    const int32_t node = visits[i].node;
    if (parts.empty() || parts.back().node != node || i - parts.back().begin == kMostVisits) {
      parts.push_back({node, i, i});
    }
    parts.back().end = i + 1;
  }
  return parts;
}

// The visits of children [visits, kTreeChildren] that have walkers. Visits of the same child
// are adjacent if those of its parent are.
inline std::vector<Visit> VisitsOfChildren(const std::vector<Visit>& visits,
                                           const std::vector<Visit>& children) {
  std::vector<Visit> joined;
  for (size_t begin = 0, end = 0; begin < visits.size(); begin = end) {
    while (end < visits.size() && visits[end].node == visits[begin].node) ++end;
    for (int child = 0; child < kTreeChildren; ++child) {
      for (size_t i = begin; i < end; ++i) {
        const Visit& visit = children[i * kTreeChildren + child];
        if (visit.begin < visit.end) joined.push_back(visit);
      }
    }
  }
  return joined;
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_WALKERS_H_
