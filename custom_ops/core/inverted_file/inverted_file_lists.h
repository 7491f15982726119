// What the fit and the upkeep of an inverted file share: which list a row belongs
// to, and lists from that.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_LISTS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_LISTS_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/inverted_file/inverted_file.h"

namespace largeout {

// lists[i] = the list whose mean has the largest cosine with row rows[i], both at 8
// bits a number; of equal ones the first, which takes the rows that are zero or have NaN as
// well.
std::vector<int32_t> NearestLists(const ClassMatrix& matrix, const std::vector<int64_t>& rows,
                                  const InvertedFile& file, const ParallelFor& parallel);

// Sums of rows by list. Rows that are zero or have NaN count for nothing.
class ListSums {
 public:
  ListSums(const ClassMatrix& matrix, const std::vector<int64_t>& rows,
           const std::vector<int32_t>& lists, int64_t num_lists);

  // Moves mean l by the share counts[l] / size of the way to the mean of the rows
  // summed, where size is the larger of sizes[l] and counts[l].
  void MoveMeans(int64_t dim, const std::vector<int64_t>& sizes,
                 const InvertedFile& file) const;

  const std::vector<int64_t>& counts() const { return counts_; }
  // The last row of each list that has any.
  const std::vector<int64_t>& last() const { return last_; }

 private:
  std::vector<int64_t> counts_;
  std::vector<int64_t> last_;
  std::vector<float> sums_;  // [num_lists, dim]
  std::vector<float> bias_;  // [num_lists]
};

// Makes offsets and ids from the list of each class. Classes that find their list
// full (MostMembers) go to lists with few.
void PlaceRows(std::vector<int32_t> list_of_class, const InvertedFile& file);

// The list of each class, 0 where the file does not say.
std::vector<int32_t> ListOfEachClass(int64_t num_classes, const InvertedFile& file);

// Sets the means of lists of size 0 to rows of the longest lists, which are so split
// as their rows are placed anew. members[l] is a row of list l.
void SeedEmptyLists(const ClassMatrix& matrix, const std::vector<int64_t>& sizes,
                    const std::vector<int64_t>& members, const InvertedFile& file);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_LISTS_H_
