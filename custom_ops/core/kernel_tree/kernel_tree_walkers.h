// Those who go down a kernel tree, and where they are, for kernel_tree_walk.cc.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_WALKERS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_WALKERS_H_

#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "custom_ops/core/kernel_tree/kernel_tree_shape.h"

namespace largeout {

inline constexpr int64_t kMostVisits = 64;  // of a node that a thread takes at once

// One that goes down the tree: a draw, or a label, whose way is given.
struct Walker {
  LogOfShares way;
  int64_t number;  // of the draw, or the place of the label
  int32_t label;   // -1: a draw
  int32_t child;   // where it goes next, or the class in its leaf
};

// A query at a node with walkers begin, ..., end - 1.
struct Visit {
  int32_t query;
  int32_t node;
  int32_t begin, end;
};

// Visits begin, ..., end - 1, all of a node.
struct Part {
  int32_t node;
  int32_t begin, end;
};

// The masses of what a walker picks from: for one thread.
class Masses {
 public:
  explicit Masses(int64_t most) : masses_(most), ends_(most) {}

  // The masses are now mass(0), ..., mass(size - 1).
  template <class Mass>
  void Set(int64_t size, const Mass& mass) {
    size_ = size;
    for (int64_t i = 0; i < size; ++i) masses_[i] = mass(i);
    std::partial_sum(masses_.begin(), masses_.begin() + size, ends_.begin());
  }
  bool AreNumbers() const { return total() <= std::numeric_limits<double>::max(); }
  double share(int64_t i) const { return masses_[i] / total(); }
  // The first mass that ends behind `uniform`, in [0, 1), times the total. Without branches, as
  // none can be foreseen.
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
  std::vector<double> ends_;  // sums of the masses up to each
};

// visits: those of a node together.
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

// The visits of children [visits, kTreeChildren], without those of no walkers: those of a child
// together, as those of its parent are.
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
