// The vectorised loops of kernel trees, for kernel_tree.cc and kernel_tree_walk.cc.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_SIMD_H_

#include <cstdint>

namespace largeout {

// Adjacent rows: the sums of some nodes, or the classes of a leaf.
struct AdjacentRows {
  const float* data;  // [num_rows, dim]
  int64_t num_rows;
  int64_t dim;
};

#define LARGEOUT_DECLARE_KERNEL_TREE(level)                                                    \
  namespace level {                                                                            \
  /* products[v, r] = <vectors[v], row r>. vectors: of the rows' dim. Each product is the same \
     whatever other vectors and rows there are. ahead: rows that come next, for the cache. */  \
  void MultiplyRows(const AdjacentRows& rows, const float* const* vectors,                     \
                    int64_t num_vectors, const AdjacentRows& ahead, float* products);          \
  /* The features phi of a query, see kernel_tree.h, without what follows the pairs. */        \
  void MultiplyPairs(const float* query, int64_t dim, float* phi);                             \
  /* The sum of the rows, one after the other. */                                              \
  void SumRows(const AdjacentRows& rows, float* sum);                                          \
  /* The sum of squares of a row; not finite if that overflows, or a number of it is not. */   \
  void SumSquares(const float* row, int64_t dim, float* sum);                                  \
  }
LARGEOUT_DECLARE_KERNEL_TREE(generic)
LARGEOUT_DECLARE_KERNEL_TREE(avx2)
LARGEOUT_DECLARE_KERNEL_TREE(avx512)
#undef LARGEOUT_DECLARE_KERNEL_TREE

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_SIMD_H_
