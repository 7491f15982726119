// An inverted file over the rows of a class matrix: lists of classes with similar directions,
// found by spherical k-means. A query is scored against the mean rows of the lists, and then
// only against the members of the best lists. This finds most of the classes with the highest
// logits in about O(sqrt(num_classes)). (Sivic and Zisserman 2003; Jegou, Douze, Schmid 2011,
// "Product quantization for nearest neighbor search", section IV.)
//
// The rows may be in bfloat16. The results do not depend on the number of threads. Rows that
// are zero or have NaN are members of some list, but do not influence its mean.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/base/philox.h"
#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/packed_rows.h"

namespace largeout {

// The members of list l are ids[offsets[l]] to ids[offsets[l + 1] - 1], increasing. After the
// fit, each class is in one list; before, all offsets are 0.
struct InvertedFile {
  int64_t num_lists;
  float* means;      // [num_lists, dim], approximately the mean row of each list
  float* mean_bias;  // [num_lists]
  int32_t* offsets;  // [num_lists + 1]
  int32_t* ids;      // [num_classes]
  PackedRows rows;   // row i is the row of class ids[i] when it was last packed
  // Whether the fit and the updates scale each row to length 1, or a row shorter than 1e-6 by
  // 1e6.
  bool unit_length = false;
};

// The largest number of members of a list. It bounds the cost of a query, even if all rows are
// equal.
int64_t MostMembers(int64_t num_classes, int64_t num_lists);

// num_classes / num_lists, rounded up.
int64_t MeanMembers(int64_t num_classes, int64_t num_lists);

// Whether the offsets increase from 0 to 0 or num_classes, as all functions below require. Ids
// may be invalid: those outside the matrix are skipped.
bool HasLists(const InvertedFile& file, int64_t num_classes);

// Fits the lists: k-means on a sample of the rows, drawn by the seed, then one pass over all
// rows. O(num_classes num_lists dim).
void FitLists(const ClassMatrix& matrix, PhiloxSeed seed, const ParallelFor& parallel,
              const InvertedFile& file);

// Moves the rows begin, begin + 1, ..., begin + count - 1 (modulo num_classes) to the lists
// that are now nearest, updates the means accordingly, and packs all current rows. Returns how
// many rows moved. O(count num_lists dim + num_classes dim).
int64_t UpdateLists(const ClassMatrix& matrix, int64_t begin, int64_t count,
                    const ParallelFor& parallel, const InvertedFile& file);

// The k highest logits, from packed rows, among the members of the lists whose means score
// highest. It searches num_probes lists, or fewer if these have as many members as num_probes
// lists of mean size. scores and ids: [batch, k], in decreasing order, ties by increasing id;
// -inf and -1 at the end if fewer than k are found. Queries that are not finite find nothing,
// and rows that are not finite are not found. features: [batch, dim]. REQUIRES: k >= 1,
// num_probes >= 1.
void SearchLists(const InvertedFile& file, const Features& features, int64_t dim,
                 int64_t num_probes, int64_t k, const ParallelFor& parallel, float* scores,
                 int64_t* ids);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_H_
