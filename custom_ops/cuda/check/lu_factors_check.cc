#include <cmath>
#include <string>
#include <vector>

#include "custom_ops/core/linear_algebra/lu_factors.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/check/random_doubles.h"
#include "custom_ops/cuda/lu_factors.h"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

using Doubles = std::vector<double>;

constexpr double kMinPivot = 1e-4;

// S next to Y, [size, size + width], and the CPU's solution.
struct SystemProblem {
  SystemProblem(int64_t size, int64_t width)
      : size(size), width(width), numbers(RandomDoubles(size * (size + width), 5)) {}

  double& At(int64_t row, int64_t column) { return numbers[row * (size + width) + column]; }

  // Returns X, or Y if the system is refused.
  Doubles SolveOnCpu(double* pivot) {
    Arena arena(PaddedMatrix::Size(size, size) + PaddedMatrix::Size(size, width));
    PaddedMatrix matrix(size, size, &arena), x(size, width, &arena);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j < size; ++j) matrix.row(i)[j] = At(i, j);
      for (int64_t j = 0; j < width; ++j) x.row(i)[j] = At(i, size + j);
    }
    LuFactors<double> factors(&matrix);
    *pivot = factors.Factor(kMinPivot, SerialFor);
    if (*pivot >= kMinPivot) factors.Solve(&x, SerialFor);
    Doubles solved;
    for (int64_t i = 0; i < size; ++i) {
      solved.insert(solved.end(), x.row(i), x.row(i) + width);
    }
    return solved;
  }

  int64_t size, width;
  Doubles numbers;
};

Doubles RightOf(const Doubles& numbers, int64_t size, int64_t width) {
  Doubles right;
  for (int64_t i = 0; i < size; ++i) {
    const auto row = numbers.begin() + i * (size + width);
    right.insert(right.end(), row + size, row + size + width);
  }
  return right;
}

void CheckSolved(Run* run, const std::string& what, SystemProblem problem) {
  const int64_t size = problem.size, width = problem.width;
  const std::string text = Sizes({{"size", size}, {"width", width}}) + " " + what;
  double pivot;
  const Doubles expected = problem.SolveOnCpu(&pivot);
  const DeviceArray<double> numbers(problem.numbers), gpu_pivot(1);
  const DeviceMemory scratch(SolveSystemScratchBytes(size));
  const Status launched = SolveSystem({numbers.data(), size, width}, kMinPivot, scratch.data(),
                                      gpu_pivot.data(), run->stream());
  run->Expect(text + " pivot", launched, gpu_pivot, {pivot}, 1e-9);
  if (!(pivot >= kMinPivot)) return;
  run->ExpectNear(text, RightOf(numbers.Get(), size, width), expected, 1e-8);
}

// One equation, one panel, several panels, and incomplete panels.
void CheckSizes(Run* run) {
  for (const int64_t size : {1, 2, 31, 32, 33, 64, 100}) {
    for (const int64_t width : {0, 1, 37}) CheckSolved(run, "", SystemProblem(size, width));
  }
}

// Zeros and equal numbers in the columns in which a pivot is chosen.
void CheckPivots(Run* run) {
  SystemProblem equal(40, 3);
  for (int64_t i = 0; i < 40; ++i) {
    equal.At(i, 0) = i % 2 == 0 ? 1 : -1;
    equal.At(i, 35) = 0;
  }
  equal.At(17, 35) = 2;
  CheckSolved(run, "equal numbers", equal);
}

void CheckRefused(Run* run) {
  for (const int64_t column : {0, 5, 31, 32, 69}) {
    SystemProblem zero(70, 3), nan(70, 3), bad_row(70, 3);
    for (int64_t i = 0; i < 70; ++i) {
      zero.At(i, column) = 0;
      nan.At(i, column) = NAN;
    }
    bad_row.At(column, 3) = NAN;
    CheckSolved(run, "a column of 0", zero);
    CheckSolved(run, "a column of NaN", nan);
    CheckSolved(run, "one NaN", bad_row);
  }
}

void TimeSolve(Run* run) {
  constexpr int64_t kSize = 128, kWidth = 301;
  const SystemProblem problem(kSize, kWidth);
  const DeviceArray<double> from(problem.numbers), numbers(problem.numbers), pivot(1);
  const DeviceMemory scratch(SolveSystemScratchBytes(kSize));
  const double bytes = 16.0 * problem.numbers.size();
  const double flops = 2.0 * kSize * kSize * (kSize / 3.0 + kWidth);
  run->Time(Sizes({{"size", kSize}, {"width", kWidth}}), {bytes, flops}, [&] {
    const Status status =
        CopyBytes(from.data(), 8 * from.size(), numbers.data(), run->stream());
    if (status != kOk) return status;
    return SolveSystem({numbers.data(), kSize, kWidth}, 0, scratch.data(), pivot.data(),
                       run->stream());
  });
}

void CheckSolve(Run* run) {
  CheckSizes(run);
  CheckPivots(run);
  CheckRefused(run);
  if (!run->small()) TimeSolve(run);
}

const bool registered = Register("SolveSystem", CheckSolve);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
