// The block body of SampleKernelTree: one query at a time, with all its walkers.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_WALK_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_WALK_BODY_H_

#include <cstdint>

#include "custom_ops/core/kernel_tree/kernel_tree.h"
#include "custom_ops/cuda/block_sums.h"
#include "custom_ops/cuda/kernel_tree.h"
#include "custom_ops/cuda/kernel_tree_masses.h"
#include "custom_ops/cuda/seed.h"

namespace largeout {
namespace cuda {

// A walker descends the tree: it is a draw, or a label, whose path is given.
struct TreeWalker {
  LogOfShares way;
  int64_t child;  // the child that it picks, or the class in its leaf
};

// A node with walkers order[begin], ..., order[end - 1].
struct TreeVisit {
  int32_t node;
  int32_t begin, end;
};

// The walkers at a level, grouped by visit.
struct TreeLevel {
  int32_t* order;
  TreeVisit* visits;
};

// The walkers of a query: its draws, numbered from first_draw in the batch, followed by its
// labels.
struct WalkersOfQuery {
  int64_t first_draw, num_draws;
  const int64_t* labels;  // [num_labels]
  int64_t num_labels;

  LARGEOUT_DEVICE int64_t size() const { return num_draws + num_labels; }
  LARGEOUT_DEVICE bool IsDraw(int64_t i) const { return i < num_draws; }
  LARGEOUT_DEVICE int64_t Label(int64_t i) const { return labels[i - num_draws]; }
};

// The memory of one block: scratch and shared memory.
struct WalkMemory {
  int64_t num_masses;   // the most masses from which a walker picks
  int64_t num_walkers;  // the most walkers of a query
  int64_t width;        // of phi

  LARGEOUT_HOST_DEVICE int64_t Bytes() const {
    constexpr int64_t kOfWalker =
        sizeof(TreeWalker) + 2 * (sizeof(TreeVisit) + sizeof(int32_t));
    return 2 * num_masses * static_cast<int64_t>(sizeof(double)) + num_walkers * kOfWalker +
           width * static_cast<int64_t>(sizeof(float));
  }
  LARGEOUT_DEVICE TreeWalker* Walkers(char* memory) const {
    return reinterpret_cast<TreeWalker*>(memory);
  }
  LARGEOUT_DEVICE MassMemory Masses(char* memory, char* shared) const {
    auto* const masses = reinterpret_cast<double*>(Walkers(memory) + num_walkers);
    return {masses, masses + num_masses, reinterpret_cast<float*>(masses + 2 * num_masses),
            reinterpret_cast<double*>(shared)};
  }
  // which: 0 or 1.
  LARGEOUT_DEVICE TreeLevel Level(char* memory, int which) const {
    auto* const visits =
        reinterpret_cast<TreeVisit*>(Masses(memory, nullptr).phi + width) + which * num_walkers;
    auto* const orders = reinterpret_cast<int32_t*>(visits + (2 - which) * num_walkers);
    return {orders + which * num_walkers, visits};
  }

  static constexpr int kProductBytes = kTreeChildren * kWalkThreads * sizeof(double);
  static constexpr int kSharedBytes = kProductBytes + kWalkThreads * sizeof(int64_t);
  LARGEOUT_DEVICE static int64_t* Numbers(char* shared) {
    return reinterpret_cast<int64_t*>(shared + kProductBytes);
  }
};

// Moves the walkers of one query from the root to the leaves.
template <class Block>
class WalkOfQuery {
 public:
  LARGEOUT_DEVICE WalkOfQuery(const Block& block, const KernelTree& tree, const float* query,
                              const WalkersOfQuery& who, PhiloxSeed seed,
                              const WalkMemory& memory, char* of_block, char* shared)
      : block_(block),
        shape_(tree.shape),
        who_(who),
        seed_(seed),
        numbers_(memory.Numbers(shared)),
        walkers_(memory.Walkers(of_block)),
        now_(memory.Level(of_block, 0)),
        next_(memory.Level(of_block, 1)),
        masses_(block, tree, query, memory.Masses(of_block, shared)) {}

  // Calls arrived(walker, class, log q) for all draws and for all labels that are classes, in
  // any order. Returns whether all masses on the paths are finite. If not, some walkers have
  // not arrived.
  template <class Arrived>
  LARGEOUT_DEVICE bool Run(const Arrived& arrived) {
    int64_t num_visits = StartWalkers();
    for (int level = shape_.num_levels - 1; level > 0; --level) {
      int64_t num_next = 0;
      for (int64_t i = 0; i < num_visits; ++i) {
        const TreeVisit visit = now_.visits[i];
        if (!masses_.SetChildren(level, visit.node)) return false;
        Pick(visit, level, shape_.span(level - 1), int64_t{visit.node} * kTreeChildren);
        num_next += SplitVisit(visit, next_.visits + num_next);
      }
      num_visits = num_next;
      const TreeLevel used = now_;
      now_ = next_;
      next_ = used;
    }
    for (int64_t i = 0; i < num_visits; ++i) {
      const TreeVisit visit = now_.visits[i];
      const int64_t first = visit.node * shape_.leaf_size;
      if (!masses_.SetClasses(visit.node)) return false;
      Pick(visit, 0, 1, first);
      ForWalkers(visit, [&](int32_t walker) {
        const TreeWalker& one = walkers_[walker];
        arrived(walker, first + one.child, static_cast<float>(one.way.Log()));
      });
    }
    return true;
  }

 private:
  // Starts all walkers at the root. Returns the number of visits.
  LARGEOUT_DEVICE int64_t StartWalkers() const {
    block_.ForEachThread([&](int thread) {
      for (int64_t i = thread; i < who_.size(); i += block_.size()) {
        walkers_[i] = {};
        if (who_.IsDraw(i)) now_.order[i] = static_cast<int32_t>(i);
      }
      if (thread > 0) return;
      auto end = static_cast<int32_t>(who_.num_draws);
      for (int64_t i = who_.num_draws; i < who_.size(); ++i) {
        const bool is_class = who_.Label(i) >= 0 && who_.Label(i) < shape_.num_classes;
        if (is_class) now_.order[end++] = static_cast<int32_t>(i);
      }
      now_.visits[0] = {0, 0, end};
    });
    return now_.visits[0].end > 0 ? 1 : 0;
  }

  template <class Work>
  LARGEOUT_DEVICE void ForWalkers(const TreeVisit& visit, const Work& work) const {
    block_.ForEachThread([&](int thread) {
      for (int64_t i = visit.begin + thread; i < visit.end; i += block_.size()) {
        work(now_.order[i]);
      }
    });
  }

  // Each walker of the visit picks one of the masses. Mass i belongs to the `span` classes from
  // (first + i) * span on.
  LARGEOUT_DEVICE void Pick(const TreeVisit& visit, int level, int64_t span,
                            int64_t first) const {
    ForWalkers(visit, [&](int32_t walker) {
      TreeWalker& one = walkers_[walker];
      one.child = who_.IsDraw(walker)
                      ? masses_.Pick(TreeUniform(seed_, who_.first_draw + walker, level))
                      : who_.Label(walker) / span - first;
      one.way.Take(masses_.share(one.child));
    });
  }

  // Counts of walkers per child, up to kWalkThreads, in 16 bits each.
  LARGEOUT_DEVICE static int64_t OneFor(int64_t child) { return int64_t{1} << (16 * child); }
  LARGEOUT_DEVICE static int64_t CountOf(int64_t counts, int64_t child) {
    return (counts >> (16 * child)) & 0xffff;
  }

  // numbers[t] = a count of one for the child of walker order[first + t].
  LARGEOUT_DEVICE void NumberChildren(const TreeVisit& visit, int64_t first) const {
    block_.ForEachThread([&](int thread) {
      const int64_t i = first + thread;
      numbers_[thread] = i < visit.end ? OneFor(walkers_[now_.order[i]].child) : 0;
    });
  }

  // Sorts the walkers of a visit by their children, and writes the visits of the children.
  // Returns the number of these visits.
  LARGEOUT_DEVICE int64_t SplitVisit(const TreeVisit& visit, TreeVisit* next) const {
    int64_t begins[kTreeChildren + 1] = {visit.begin};  // where the walkers of each child start
    for (int64_t first = visit.begin; first < visit.end; first += kWalkThreads) {
      NumberChildren(visit, first);
      const int64_t counts = SumOf(block_, numbers_);
      for (int c = 0; c < kTreeChildren; ++c) begins[c + 1] += CountOf(counts, c);
    }
    int num_next = 0;
    for (int c = 0; c < kTreeChildren; ++c) {
      begins[c + 1] += begins[c];
      num_next += begins[c] < begins[c + 1];
    }
    block_.ForEachThread([&](int thread) {
      TreeVisit* to = next;
      for (int c = 0; c < kTreeChildren && thread == 0; ++c) {
        if (begins[c] == begins[c + 1]) continue;
        *to++ = {visit.node * kTreeChildren + c, static_cast<int32_t>(begins[c]),
                 static_cast<int32_t>(begins[c + 1])};
      }
    });
    OrderByChild(visit, begins);
    return num_next;
  }

  // Writes the walkers in the order of their children. begins: where the walkers of each child
  // start; is changed.
  LARGEOUT_DEVICE void OrderByChild(const TreeVisit& visit, int64_t* begins) const {
    for (int64_t first = visit.begin; first < visit.end; first += kWalkThreads) {
      NumberChildren(visit, first);
      const int64_t counts = SumBefore(block_, numbers_);
      block_.ForEachThread([&](int thread) {
        if (first + thread >= visit.end) return;
        const int32_t walker = now_.order[first + thread];
        const int64_t child = walkers_[walker].child;
        next_.order[begins[child] + CountOf(numbers_[thread], child)] = walker;
      });
      for (int c = 0; c < kTreeChildren; ++c) begins[c] += CountOf(counts, c);
    }
  }

  const Block& block_;
  const TreeShape& shape_;
  const WalkersOfQuery who_;
  const PhiloxSeed seed_;
  int64_t* const numbers_;
  TreeWalker* const walkers_;
  TreeLevel now_, next_;
  TreeMasses<Block> masses_;
};

// Processes queries [batch, rows.dim], one per block.
struct WalkTreeBody {
  KernelTree tree;
  const float* queries;
  const int64_t* labels;  // [batch, walk.labels_width]
  TreeWalk walk;
  const int64_t* seed;  // [2]
  WalkMemory memory;
  char* scratch;  // memory.Bytes() per block
  TreeSample sample;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    const PhiloxSeed bits = SeedAt(seed);
    const TreeDraws draws = MakeTreeDraws(walk.batch, walk.num_sampled, walk.shared, bits);
    char* const of_block = scratch + block.index() * memory.Bytes();
    for (int64_t query = block.index(); query < walk.batch; query += block.num_blocks()) {
      const int64_t begin = draws.begin(query);
      const WalkersOfQuery who = {begin, draws.begin(query + 1) - begin,
                                  labels + query * walk.labels_width, walk.labels_width};
      float* const label_log_q = sample.label_log_q + query * walk.labels_width;
      const auto write = [&](int64_t walker, int64_t id, float log_q) {
        if (who.IsDraw(walker)) {
          sample.ids[begin + walker] = id;
          sample.log_q[begin + walker] = log_q;
        } else {
          label_log_q[walker - who.num_draws] = log_q;
        }
      };
      const auto write_unknown = [&](int64_t from) {
        block.ForEachThread([&](int thread) {
          for (int64_t i = from + thread; i < who.size(); i += block.size()) {
            const bool is_padding = !who.IsDraw(i) && who.Label(i) == -1;
            write(i, 0, is_padding ? 0 : NotANumber());
          }
        });
      };
      write_unknown(who.num_draws);
      WalkOfQuery<Block> one(block, tree, queries + query * tree.rows.dim, who, bits, memory,
                             of_block, shared);
      if (!one.Run(write)) write_unknown(0);
    }
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_WALK_BODY_H_
