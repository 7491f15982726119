#include <algorithm>

#include "custom_ops/cuda/dense_product.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/lu_factors.h"
#include "custom_ops/cuda/lu_factors_body.h"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace {

LuPanel PanelFrom(int64_t first, const LinearSystem& system, double min_pivot,
                  int32_t* swapped_with, double* smallest_pivot) {
  const int64_t last = std::min(first + kPanelWidth, system.size);
  return {system.data, system.size, system.stride(), first,
          last,        min_pivot,   swapped_with,    smallest_pivot};
}

// Adds `factor` times a product to rows [first, last) from column `column` on. The product is
// that of these rows in the panel's columns with the panel's rows.
Status AddPanel(const LuPanel& panel, int64_t first, int64_t last, int64_t column,
                double factor, Stream stream) {
  const double* const panel_columns = panel.matrix + first * panel.stride + panel.first;
  const double* const panel_rows = panel.matrix + panel.first * panel.stride + column;
  double* const out = panel.matrix + first * panel.stride + column;
  return Multiply({{last - first, panel.last - panel.first, panel.stride - column},
                   {panel_columns, panel.stride, 1},
                   {panel_rows, panel.stride, 1},
                   out,
                   out,
                   panel.stride,
                   factor},
                  stream);
}

Status Factor(const LuPanel& panel, Stream stream) {
  Status status = ForEachBlock(1, FactorPanelBody::kThreads, FactorPanelBody::kSharedBytes,
                               FactorPanelBody{panel}, stream);
  if (status == kOk)
    status = ForEach(panel.stride - panel.last, FollowPanelBody{panel}, stream);
  if (status != kOk) return status;
  return AddPanel(panel, panel.last, panel.rows, panel.last, 1, stream);
}

Status Solve(const LuPanel& panel, Stream stream) {
  const Status status = ForEach(panel.stride - panel.rows, SolvePanelBody{panel}, stream);
  if (status != kOk) return status;
  return AddPanel(panel, 0, panel.first, panel.rows, -1, stream);
}

}  // namespace

int64_t SolveSystemScratchBytes(int64_t size) {
  Scratch scratch(nullptr);
  scratch.Take<int32_t>(size);
  return scratch.bytes();
}

Status SolveSystem(const LinearSystem& system, double min_pivot, void* scratch,
                   double* smallest_pivot, Stream stream) {
  auto* const swapped_with = Scratch(scratch).Take<int32_t>(system.size);
  const auto panel_from = [&](int64_t first) {
    return PanelFrom(first, system, min_pivot, swapped_with, smallest_pivot);
  };
  Status status = kOk;
  int64_t first = 0;
  for (; first < system.size && status == kOk; first += kPanelWidth) {
    status = Factor(panel_from(first), stream);
  }
  for (; first > 0 && status == kOk; first -= kPanelWidth) {
    status = Solve(panel_from(first - kPanelWidth), stream);
  }
  return status;
}

}  // namespace cuda
}  // namespace largeout
