#include <algorithm>
#include <vector>

#include "custom_ops/core/inverted_file/inverted_file_lists.h"

namespace largeout {
namespace {

constexpr int kRounds = 6;                // of k-means
constexpr int64_t kRowsForEachList = 32;  // size of the sample for k-means

// Distinct rows, one from each of num_sampled ranges of about equal length.
std::vector<int64_t> SampleRows(int64_t num_classes, int64_t num_sampled, PhiloxSeed seed) {
  std::vector<int64_t> rows(num_sampled);
  for (int64_t i = 0; i < num_sampled; ++i) {
    const int64_t begin = i * num_classes / num_sampled;
    const int64_t end = (i + 1) * num_classes / num_sampled;
    rows[i] = begin + ScaleBits(BitsOfDraw(seed, i).first, end - begin);
  }
  return rows;
}

// Initialises the lists with single rows, evenly spaced in the sample.
void SeedMeans(const ClassMatrix& matrix, const std::vector<int64_t>& rows,
               const InvertedFile& file) {
  std::fill_n(file.means, file.num_lists * matrix.dim, 0.0f);
  std::fill_n(file.mean_bias, file.num_lists, 0.0f);
  std::vector<int64_t> seeds(file.num_lists);
  std::vector<int32_t> lists(file.num_lists);
  for (int64_t l = 0; l < file.num_lists; ++l) {
    seeds[l] = rows[l * rows.size() / file.num_lists];
    lists[l] = l;
  }
  ListSums(matrix, seeds, lists, file)
      .MoveMeans(matrix.dim, std::vector<int64_t>(file.num_lists), file);
}

// Assigns each row to the nearest list, and moves each mean to the middle of its rows.
std::vector<int32_t> Round(const ClassMatrix& matrix, const RowIds& rows,
                           const ParallelFor& parallel, const InvertedFile& file) {
  std::vector<int32_t> lists = NearestLists(matrix, rows, file, parallel);
  const ListSums sums(matrix, rows, lists, file);
  sums.MoveMeans(matrix.dim, sums.counts(), file);
  SeedEmptyLists(matrix, sums.counts(), sums.last(), file);
  return lists;
}

// One class of each list that is not empty.
std::vector<int64_t> MiddleMembers(const InvertedFile& file) {
  std::vector<int64_t> members(file.num_lists);
  for (int64_t l = 0; l < file.num_lists; ++l) {
    const int64_t begin = file.offsets[l], end = file.offsets[l + 1];
    if (begin < end) members[l] = file.ids[(begin + end) / 2];
  }
  return members;
}

std::vector<int64_t> Sizes(const InvertedFile& file) {
  std::vector<int64_t> sizes(file.num_lists);
  for (int64_t l = 0; l < file.num_lists; ++l) {
    sizes[l] = file.offsets[l + 1] - file.offsets[l];
  }
  return sizes;
}

}  // namespace

void FitLists(const ClassMatrix& matrix, PhiloxSeed seed, const ParallelFor& parallel,
              const InvertedFile& file) {
  const int64_t num_sampled = std::min(matrix.num_classes, kRowsForEachList * file.num_lists);
  const std::vector<int64_t> rows = SampleRows(matrix.num_classes, num_sampled, seed);
  SeedMeans(matrix, rows, file);
  for (int round = 0; round < kRounds; ++round) Round(matrix, rows, parallel, file);
  PlaceRows(Round(matrix, RowIds(matrix.num_classes), parallel, file), file);
  PackLists(matrix, parallel, file);
}

int64_t UpdateLists(const ClassMatrix& matrix, int64_t begin, int64_t count,
                    const ParallelFor& parallel, const InvertedFile& file) {
  std::vector<int64_t> rows(std::min(count, matrix.num_classes));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = (begin + i) % matrix.num_classes;
  const std::vector<int32_t> nearest = NearestLists(matrix, rows, file, parallel);
  std::vector<int32_t> lists = ListOfEachClass(matrix.num_classes, file);
  int64_t moved = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    moved += lists[rows[i]] != nearest[i];
    lists[rows[i]] = nearest[i];
  }
  const ListSums sums(matrix, rows, nearest, file);
  PlaceRows(std::move(lists), file);
  const std::vector<int64_t> sizes = Sizes(file);
  sums.MoveMeans(matrix.dim, sizes, file);
  SeedEmptyLists(matrix, sizes, MiddleMembers(file), file);
  PackLists(matrix, parallel, file);
  return moved;
}

}  // namespace largeout
