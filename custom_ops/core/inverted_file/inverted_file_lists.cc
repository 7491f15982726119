#include "custom_ops/core/inverted_file/inverted_file_lists.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "custom_ops/core/base/counting_sort.h"
#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/float_row.h"
#include "custom_ops/core/class_scan/unit_rows.h"
#include "custom_ops/core/inverted_file/packed_means.h"

namespace largeout {
namespace {

constexpr int64_t kRowsAtOnce = 4096;
// The largest size of a list, as a multiple of the mean size.
constexpr int64_t kMostTimesMean = 8;

// Row `row` as the file scores it: the memory of the matrix, or `wide` [dim].
const float* ScoredRow(const ClassMatrix& matrix, int64_t row, const InvertedFile& file,
                       float* wide) {
  const float* const found = FloatRow(matrix, row, wide);
  if (!file.unit_length) return found;
  const double factor = InverseLength(found, matrix.dim);
  for (int64_t k = 0; k < matrix.dim; ++k) wide[k] = factor * found[k];
  return wide;
}

// The means scaled to length 1; those of length 0 stay 0.
std::vector<float> Directions(const InvertedFile& file, int64_t dim) {
  std::vector<float> directions(file.means, file.means + file.num_lists * dim);
  for (int64_t l = 0; l < file.num_lists; ++l) {
    float* row = &directions[l * dim];
    const double norm = std::sqrt(SquaredNorm(row, dim));
    for (int64_t k = 0; k < dim; ++k) row[k] = norm > 0 ? row[k] / norm : 0.0f;
  }
  return directions;
}

// The first position with the highest score; 0 if there is none.
int32_t Highest(const float* scores, const std::vector<int32_t>& positions) {
  int32_t highest = positions.empty() ? 0 : positions[0];
  for (int32_t position : positions) {
    if (scores[position] > scores[highest]) highest = position;
  }
  return highest;
}

}  // namespace

int64_t MeanMembers(int64_t num_classes, int64_t num_lists) {
  return CeilDiv(num_classes, num_lists);
}

int64_t MostMembers(int64_t num_classes, int64_t num_lists) {
  return kMostTimesMean * MeanMembers(num_classes, num_lists);
}

bool HasLists(const InvertedFile& file, int64_t num_classes) {
  const int32_t members = file.offsets[file.num_lists];
  return file.offsets[0] == 0 && (members == 0 || members == num_classes) &&
         std::is_sorted(file.offsets, file.offsets + file.num_lists + 1);
}

std::vector<int32_t> NearestLists(const ClassMatrix& matrix, const RowIds& rows,
                                  const InvertedFile& file, const ParallelFor& parallel) {
  const std::vector<float> directions = Directions(file, matrix.dim);
  const PackedMeans means({directions.data(), nullptr, file.num_lists, matrix.dim}, parallel);
  const int64_t num_rows = rows.size();
  std::vector<float> some(kRowsAtOnce * matrix.dim);
  std::vector<int32_t> result(num_rows);
  for (int64_t first = 0; first < num_rows; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, num_rows - first);
    for (int64_t i = 0; i < count; ++i) {
      float* const place = &some[i * matrix.dim];
      const float* const row = FloatRow(matrix, rows[first + i], place);
      if (row != place) std::copy_n(row, matrix.dim, place);
    }
    const QueryCodes queries({some.data(), count}, matrix.dim, parallel);
    means.Score(queries.view(), count, file.num_lists / 4, parallel,
                [&](int64_t i, const float* scores, int64_t num_scores, ScoreSieve* sieve) {
                  result[first + i] = Highest(scores, sieve->Pass(scores, num_scores, 1));
                });
  }
  return result;
}

ListSums::ListSums(const ClassMatrix& matrix, const RowIds& rows,
                   const std::vector<int32_t>& lists, const InvertedFile& file)
    : counts_(file.num_lists),
      last_(file.num_lists),
      sums_(file.num_lists * matrix.dim),
      bias_(file.num_lists) {
  std::vector<float> wide(matrix.dim);
  for (int64_t i = 0; i < rows.size(); ++i) {
    const float* row = ScoredRow(matrix, rows[i], file, wide.data());
    const float bias = matrix.bias != nullptr ? matrix.bias[rows[i]] : 0.0f;
    if (SquaredNorm(row, matrix.dim) == 0.0 || !std::isfinite(bias)) continue;
    float* sum = &sums_[lists[i] * matrix.dim];
    for (int64_t k = 0; k < matrix.dim; ++k) sum[k] += row[k];
    bias_[lists[i]] += bias;
    ++counts_[lists[i]];
    last_[lists[i]] = rows[i];
  }
}

void ListSums::MoveMeans(int64_t dim, const std::vector<int64_t>& sizes,
                         const InvertedFile& file) const {
  for (int64_t l = 0; l < file.num_lists; ++l) {
    if (counts_[l] == 0) continue;
    const float size = std::max(sizes[l], counts_[l]);
    const float keep = 1.0f - counts_[l] / size;
    float* mean = file.means + l * dim;
    const float* sum = &sums_[l * dim];
    for (int64_t k = 0; k < dim; ++k) mean[k] = keep * mean[k] + sum[k] / size;
    file.mean_bias[l] = keep * file.mean_bias[l] + bias_[l] / size;
  }
}

void PlaceRows(std::vector<int32_t> list_of_class, const InvertedFile& file) {
  const int64_t num_classes = list_of_class.size();
  const int64_t most = MostMembers(num_classes, file.num_lists);
  const int64_t few = MeanMembers(num_classes, file.num_lists);
  std::vector<int64_t> sizes(file.num_lists);
  std::vector<int64_t> left_over;
  for (int64_t c = 0; c < num_classes; ++c) {
    int64_t& size = sizes[list_of_class[c]];
    if (size == most) left_over.push_back(c);
    if (size < most) ++size;
  }
  int32_t list = 0;
  for (int64_t c : left_over) {
    while (sizes[list] >= few) ++list;
    list_of_class[c] = list;
    ++sizes[list];
  }
  CountingSort by_list(Chunks(num_classes), file.num_lists);
  const auto list_of = [&](int64_t c) { return list_of_class[c]; };
  by_list.Count(list_of);
  by_list.WriteOffsets(file.offsets);
  by_list.Place(list_of, [&](int64_t c, int32_t place) { file.ids[place] = c; });
}

std::vector<int32_t> ListOfEachClass(int64_t num_classes, const InvertedFile& file) {
  std::vector<int32_t> lists(num_classes, 0);
  for (int32_t l = 0; l < file.num_lists; ++l) {
    for (int32_t i = file.offsets[l]; i < file.offsets[l + 1]; ++i) {
      const int64_t id = file.ids[i];
      if (0 <= id && id < num_classes) lists[id] = l;
    }
  }
  return lists;
}

void PackLists(const ClassMatrix& matrix, const ParallelFor& parallel,
               const InvertedFile& file) {
  PackAllRows(matrix, file.ids, parallel, file.rows);
  if (!file.unit_length) return;
  // In the order of the rows in memory, which is faster than in the order of the lists.
  std::vector<float> factors(matrix.num_classes);
  parallel(matrix.num_classes, matrix.dim / 2, [&](int64_t begin, int64_t end) {
    std::vector<float> wide(matrix.dim);
    for (int64_t c = begin; c < end; ++c) {
      factors[c] = InverseLength(FloatRow(matrix, c, wide.data()), matrix.dim);
    }
  });
  for (int64_t i = 0; i < file.rows.num_rows; ++i) {
    // The codes of a row are the same for any length.
    file.rows.group_scales(i / kGroupRows)[i % kGroupRows] *= factors[file.ids[i]];
  }
}

void SeedEmptyLists(const ClassMatrix& matrix, const std::vector<int64_t>& sizes,
                    const std::vector<int64_t>& members, const InvertedFile& file) {
  std::vector<int32_t> order(file.num_lists);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return sizes[a] > sizes[b]; });
  auto longest = order.begin();
  std::vector<float> wide(matrix.dim);
  for (auto empty = order.rbegin(); sizes[*empty] == 0 && sizes[*longest] > 1; ++empty) {
    const int64_t member = members[*longest++];
    const float* row = ScoredRow(matrix, member, file, wide.data());
    if (SquaredNorm(row, matrix.dim) == 0.0) continue;
    std::copy_n(row, matrix.dim, file.means + *empty * matrix.dim);
    file.mean_bias[*empty] = matrix.bias != nullptr ? matrix.bias[member] : 0.0f;
  }
}

}  // namespace largeout
