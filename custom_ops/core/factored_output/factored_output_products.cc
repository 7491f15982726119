#include "custom_ops/core/factored_output/factored_output_products.h"

#include "custom_ops/core/linear_algebra/dense_product.h"
#include "custom_ops/core/linear_algebra/magnitude.h"
#include "custom_ops/core/linear_algebra/padded_matrix.h"

namespace largeout {
namespace {

template <class Number>
void CopySquare(const double* square, Square form, const ParallelFor& parallel,
                PaddedMatrixOf<Number>* to) {
  const int64_t width = to->width();
  if (form == Square::kAsItIs) {
    to->CopyFrom(square, parallel);
  } else {
    TransposeInto(square, width, width, width, to->data(), to->stride(), parallel);
  }
}

}  // namespace

template <>
void AddTimesSquare<double>(const DenseRows& rows, const double* square, Square form,
                            const ParallelFor& parallel, double* out, int64_t out_stride) {
  Arena arena(PaddedMatrix::Size(rows.width, rows.width));
  PaddedMatrix right(rows.width, rows.width, &arena);
  CopySquare(square, form, parallel, &right);
  AddProductToDoubles<double>(rows.rows, {rows.data, rows.stride, 1}, right, out, out_stride,
                              parallel);
}

template <>
void AddTimesSquare<float>(const DenseRows& rows, const double* square, Square form,
                           const ParallelFor& parallel, double* out, int64_t out_stride) {
  using Matrix = PaddedMatrixOf<float>;
  const int64_t width = rows.width;
  Arena arena(Matrix::Size(rows.rows, width) + Matrix::Size(width, width));
  Matrix left(rows.rows, width, &arena), right(width, width, &arena);
  left.CopyFrom(rows.data, rows.stride, parallel);
  CopySquare(square, form, parallel, &right);
  if (!ProductFits<float>(SumOfAbsolutes(left), SumOfAbsolutes(right))) {
    return AddTimesSquare<double>(rows, square, form, parallel, out, out_stride);
  }
  AddProductToDoubles(rows.rows, left.view(), right, out, out_stride, parallel);
}

}  // namespace largeout
