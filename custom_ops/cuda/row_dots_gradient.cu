#include "custom_ops/cuda/memory.h"
#include "custom_ops/cuda/row_dots_gradient.h"
#include "custom_ops/cuda/row_dots_gradient_body.h"
#include "custom_ops/cuda/row_sums_launch.cuh"

namespace largeout {
namespace cuda {
namespace {

struct Parts {
  int64_t* ids;
  char* merge;
};

Parts Take(int64_t size, int64_t num_classes, int64_t width, Scratch* scratch) {
  int64_t* const ids = scratch->Take<int64_t>(size);
  return {ids, scratch->Take<char>(MergeRowsScratchBytes(size, num_classes, width))};
}

}  // namespace

int64_t RowGradientScratchBytes(const OwnClasses& own, const SharedClasses& shared,
                                int64_t num_classes, int64_t dim) {
  Scratch none(nullptr);
  Take(own.size() + shared.size, num_classes, dim + 1, &none);
  return none.bytes();
}

Status RowDotsRowGradient(const OwnClasses& own, const SharedClasses& shared,
                          int64_t num_classes, int64_t dim, const RowDotsGradients& gradients,
                          void* memory, const RowGradient& gradient, Stream stream) {
  const int64_t size = own.size() + shared.size;
  if (size == 0) return kOk;
  Scratch scratch(memory);
  const Parts parts = Take(size, num_classes, dim + 1, &scratch);
  Status status = ForEach(size, JoinIdsBody{own, shared, parts.ids}, stream);
  if (status != kOk) return status;
  MergedRows merged{};
  status = MergeRows(parts.ids, size, num_classes, dim + 1, parts.merge, &merged, stream);
  if (status != kOk) return status;
  const int64_t rows = RowGradientRows(own, shared, num_classes);
  const int64_t width = gradient.d_biases == nullptr ? dim : dim + 1;
  const DotTerms terms{merged.positions, own, gradients, dim, width};
  const WriteSumsBody<DotTerms, int64_t> body{
      merged, terms, rows, dim, gradient.ids, gradient.d_rows, gradient.d_biases};
  return SumRunsAndRows(merged, terms, rows, 0, body, stream);
}

}  // namespace cuda
}  // namespace largeout
