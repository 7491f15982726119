#include <string>
#include <vector>

#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/check/random_doubles.h"
#include "custom_ops/cuda/dense_product.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

using Doubles = std::vector<double>;

// The layouts of the factors, and the options of a product.
struct Form {
  bool a_transposed, b_transposed, scaled, based, lower;
};

constexpr Form kForms[] = {{false, false, false, false, false},
                           {true, false, true, true, false},
                           {false, true, true, false, false},
                           {true, true, false, true, true}};
// One number, an empty depth, less than a square, whole squares, and slightly more.
constexpr ProductSize kSizes[] = {{1, 1, 1},    {3, 0, 5},    {0, 4, 3},    {2, 7, 19},
                                  {32, 32, 32}, {33, 65, 97}, {100, 40, 70}};

Strided<double> Factor(const double* data, int64_t rows, int64_t width, bool transposed) {
  if (transposed) return {data, 1, rows};
  return {data, width, 1};
}

double At(const Strided<double>& matrix, int64_t i, int64_t j) {
  return matrix.data[i * matrix.row_stride + j * matrix.step];
}

void CheckProductOf(Run* run, const ProductSize& size, const Form& form) {
  if (form.lower && size.rows != size.width) return;
  constexpr int64_t kPadding = 3;  // after each row of the result
  const int64_t stride = size.width + kPadding;
  const Doubles a = RandomDoubles(size.rows * size.depth, 1);
  const Doubles b = RandomDoubles(size.depth * size.width, 2);
  const Doubles scales = RandomDoubles(size.depth, 3);
  const Doubles old = RandomDoubles(size.rows * stride, 4);
  const DeviceArray<double> gpu_a(a), gpu_b(b), gpu_scales(scales), out(old);
  DenseProduct product{size,
                       Factor(gpu_a.data(), size.rows, size.depth, form.a_transposed),
                       Factor(gpu_b.data(), size.depth, size.width, form.b_transposed),
                       form.based ? out.data() : nullptr,
                       out.data(),
                       stride,
                       -2,
                       form.scaled ? gpu_scales.data() : nullptr,
                       form.lower};
  const Status launched = Multiply(product, run->stream());
  Doubles expected = old, found = out.Get();
  for (int64_t r = 0; r < size.rows; ++r) {
    for (int64_t j = 0; j < size.width; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < size.depth; ++k) {
        sum += At(Factor(a.data(), size.rows, size.depth, form.a_transposed), r, k) *
               (form.scaled ? scales[k] : 1) *
               At(Factor(b.data(), size.depth, size.width, form.b_transposed), k, j);
      }
      double* const to = &expected[r * stride + j];
      *to = (form.based ? *to : 0) - 2 * sum;
      if (form.lower && j > r) found[r * stride + j] = *to;
    }
  }
  const std::string text =
      Sizes({{"rows", size.rows}, {"depth", size.depth}, {"width", size.width}}) +
      (form.lower ? " lower" : "");
  run->ExpectOk(text, launched);
  run->ExpectNear(text, found, expected, 1e-12);
}

void TimeProduct(Run* run) {
  constexpr int64_t kBatch = 128, kWidth = 301;
  const DeviceArray<double> a(RandomDoubles(kBatch * kWidth, 1)), out(kWidth * kWidth);
  const DenseProduct product{{kWidth, kBatch, kWidth},
                             {a.data(), 1, kWidth},
                             {a.data(), kWidth, 1},
                             nullptr,
                             out.data(),
                             kWidth};
  run->Time(Sizes({{"rows", kWidth}, {"depth", kBatch}, {"width", kWidth}}),
            {8.0 * (2 * kBatch * kWidth + kWidth * kWidth), 2.0 * kWidth * kBatch * kWidth},
            [&] { return Multiply(product, run->stream()); });
}

void CheckProduct(Run* run) {
  for (const ProductSize& size : kSizes) {
    for (const Form& form : kForms) CheckProductOf(run, size, form);
  }
  if (!run->small()) TimeProduct(run);
}

const bool registered = Register("DenseProduct", CheckProduct);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
