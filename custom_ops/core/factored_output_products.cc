#include "custom_ops/core/factored_output_products.h"

#include <type_traits>

#include "custom_ops/core/dense_product.h"
#include "custom_ops/core/magnitude.h"
#include "custom_ops/core/padded_matrix.h"

namespace largeout {

template <class Number>
void AddTimesSquare(const DenseRows& rows, const double* square, Square form,
                    const ParallelFor& parallel, double* out, int64_t out_stride) {
  const int64_t width = rows.width;
  using Matrix = PaddedMatrixOf<Number>;
  Arena arena(Matrix::Size(rows.rows, width) + Matrix::Size(width, width));
  Matrix left(rows.rows, width, &arena), right(width, width, &arena);
  left.CopyFrom(rows.data, rows.stride, parallel);
  if (form == Square::kAsItIs) {
    right.CopyFrom(square, width, parallel);
  } else {
    TransposeInto(square, width, width, width, right.data(), right.stride(), parallel);
  }
  if constexpr (std::is_same_v<Number, float>) {
    if (!ProductFits<float>(SumOfAbsolutes(left), SumOfAbsolutes(right))) {
      return AddTimesSquare<double>(rows, square, form, parallel, out, out_stride);
    }
  }
  AddProductToDoubles(rows.rows, left.view(), right, out, out_stride, parallel);
}

template void AddTimesSquare<float>(const DenseRows&, const double*, Square, const ParallelFor&,
                                    double*, int64_t);
template void AddTimesSquare<double>(const DenseRows&, const double*, Square,
                                     const ParallelFor&, double*, int64_t);

}  // namespace largeout
