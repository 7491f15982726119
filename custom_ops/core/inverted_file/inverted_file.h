// An inverted file over the rows of a class matrix: lists of classes that point
// the same way, found by spherical k-means. A query is scored against the lists'
// mean rows and then against the members of the best lists only: the classes of
// highest logit are found, most of them, in about O(sqrt(num_classes)).
// (Sivic and Zisserman 2003; Jegou, Douze, Schmid 2011, "Product quantization for
// nearest neighbor search", section IV.)
//
// All results are the same on any number of threads. Bad numbers do no harm: rows
// that are zero or have NaN are in some list like others, and count for no mean.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/base/philox.h"
#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/packed_rows.h"

namespace largeout {

// Members of list l: ids[offsets[l]] to ids[offsets[l + 1] - 1], rising. Once
// fitted, each class is in one list; before, all offsets are 0.
struct InvertedFile {
  int64_t num_lists;
  float* means;      // [num_lists, dim], about the mean row of each list
  float* mean_bias;  // [num_lists]
  int32_t* offsets;  // [num_lists + 1]
  int32_t* ids;      // [num_classes]
  PackedRows rows;   // row i is that of class ids[i], as it was when last packed
};

// No list has more members than this: what a query costs is bounded, also where
// all rows are equal.
int64_t MostMembers(int64_t num_classes, int64_t num_lists);

// num_classes / num_lists, rounded up.
int64_t MeanMembers(int64_t num_classes, int64_t num_lists);

// Whether the offsets rise from 0 to 0 or num_classes, as all functions below
// require. Ids need not be right: those outside the matrix are passed over.
bool HasLists(const InvertedFile& file, int64_t num_classes);

// Makes the lists anew: k-means on a part of the rows drawn by the seed, then one
// pass over all rows. O(num_classes num_lists dim).
void FitLists(const ClassMatrix& matrix, PhiloxSeed seed, const ParallelFor& parallel,
              const InvertedFile& file);

// Moves the rows begin, begin + 1, ..., begin + count - 1 (modulo num_classes) to
// the lists that are nearest now, and the means after them; packs all rows as they
// are now. Returns how many rows moved. O(count num_lists dim + num_classes dim).
int64_t UpdateLists(const ClassMatrix& matrix, int64_t begin, int64_t count,
                    const ParallelFor& parallel, const InvertedFile& file);

// The k highest logits, from packed rows, among the members of the lists whose means
// score highest: num_probes of them, or fewer that hold as many members as so many
// lists of mean size. scores and ids [batch, k], falling, of equal ones the
// lower id first. Fewer than k found: -inf and -1 at the end. Rows and queries with
// numbers that are not finite find nothing and are not found.
// features: [batch, dim]. REQUIRES: k >= 1, num_probes >= 1.
void SearchLists(const InvertedFile& file, const Features& features, int64_t dim,
                 int64_t num_probes, int64_t k, const ParallelFor& parallel, float* scores,
                 int64_t* ids);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_H_
