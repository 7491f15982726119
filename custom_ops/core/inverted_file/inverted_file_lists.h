// Shared by the fit and the updates of an inverted file: which list a row belongs to, and lists
// made from that.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_LISTS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_LISTS_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/inverted_file/inverted_file.h"

namespace largeout {

// Ids of classes: given ones, or all of [0, num_classes) without memory for them.
class RowIds {
 public:
  explicit RowIds(int64_t num_classes) : size_(num_classes) {}
  RowIds(const std::vector<int64_t>& ids) : ids_(ids.data()), size_(ids.size()) {}

  int64_t size() const { return size_; }
  int64_t operator[](int64_t i) const { return ids_ != nullptr ? ids_[i] : i; }

 private:
  const int64_t* ids_ = nullptr;
  int64_t size_;
};

// lists[i] = the list whose mean has the largest cosine with row rows[i], both as 8-bit codes.
// The first list wins ties, and gets the rows that are zero or have NaN.
std::vector<int32_t> NearestLists(const ClassMatrix& matrix, const RowIds& rows,
                                  const InvertedFile& file, const ParallelFor& parallel);

// The sums of the rows of each list. With `unit_length` of the file, rows are first scaled to
// length 1. Rows that are zero or have NaN are ignored.
class ListSums {
 public:
  ListSums(const ClassMatrix& matrix, const RowIds& rows, const std::vector<int32_t>& lists,
           const InvertedFile& file);

  // Moves mean l towards the mean of the summed rows, by the share counts[l] / size of the
  // distance. size is the larger of sizes[l] and counts[l].
  void MoveMeans(int64_t dim, const std::vector<int64_t>& sizes,
                 const InvertedFile& file) const;

  const std::vector<int64_t>& counts() const { return counts_; }
  // The last row of each list that is not empty.
  const std::vector<int64_t>& last() const { return last_; }

 private:
  std::vector<int64_t> counts_;
  std::vector<int64_t> last_;
  std::vector<float> sums_;  // [num_lists, dim]
  std::vector<float> bias_;  // [num_lists]
};

// Computes offsets and ids from the list of each class. Classes whose list is full
// (MostMembers) go to lists with few members.
void PlaceRows(std::vector<int32_t> list_of_class, const InvertedFile& file);

// The list of each class; 0 if the file does not contain the class.
std::vector<int32_t> ListOfEachClass(int64_t num_classes, const InvertedFile& file);

// Packs the current rows of all classes in the order of the lists. With `unit_length` of the
// file, rows are first scaled to length 1.
void PackLists(const ClassMatrix& matrix, const ParallelFor& parallel,
               const InvertedFile& file);

// Sets the means of empty lists to rows of the longest lists, which splits these when their
// rows are assigned again. members[l] is a row of list l.
void SeedEmptyLists(const ClassMatrix& matrix, const std::vector<int64_t>& sizes,
                    const std::vector<int64_t>& members, const InvertedFile& file);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_LISTS_H_
