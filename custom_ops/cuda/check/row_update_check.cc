#include <vector>

#include "custom_ops/core/optimizers/row_update.h"
#include "custom_ops/cuda/check/row_problem.h"
#include "custom_ops/cuda/row_update.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

constexpr float kRate = 0.1f, kEpsilon = 1e-3f, kWeightDecay = 0.01f, kDecay = 0.9f;
constexpr double kBeta1 = 0.9, kBeta2 = 0.999;
constexpr int64_t kStep = 9;
constexpr double kTolerance = 2e-5;

// The variable and its slots, for the CPU and the GPU.
struct Rows {
  Rows(const Size& size, int64_t slot_size)
      : w(RandomFloats(size.num_rows * size.dim, 1)),
        m(RandomFloats(slot_size, 2)),
        v(RandomFloats(slot_size, 3)),
        gpu_w(w),
        gpu_m(m),
        gpu_v(v),
        gpu_last_step(size.num_rows) {
    for (int64_t row = 0; row < size.num_rows; ++row) last_step.push_back(row % 7);
    gpu_last_step.Set(last_step);
  }

  std::vector<float> w, m, v;
  std::vector<int64_t> last_step;
  DeviceArray<float> gpu_w, gpu_m, gpu_v;
  DeviceArray<int64_t> gpu_last_step;
};

struct Hyperparameters {
  DeviceArray<int64_t> step{std::vector<int64_t>{kStep}};
  DeviceArray<double> betas{std::vector<double>{kBeta1, kBeta2}};
  // learning rate, epsilon, weight decay, decay
  DeviceArray<float> floats{std::vector<float>{kRate, kEpsilon, kWeightDecay, kDecay}};

  AdamStep Adam(const Rows& rows, bool has_momentum, bool decays) const {
    const float* at = floats.data();
    return {rows.gpu_w.data(),
            has_momentum ? rows.gpu_m.data() : nullptr,
            rows.gpu_v.data(),
            decays ? rows.gpu_last_step.data() : nullptr,
            decays ? step.data() : nullptr,
            at,
            betas.data(),
            betas.data() + 1,
            at + 1,
            at + 2};
  }
  AdagradStep Adagrad(const Rows& rows) const {
    const float* at = floats.data();
    return {rows.gpu_w.data(), rows.gpu_v.data(), at, at + 1, at + 2};
  }
  RowwiseAdagradStep RowwiseAdagrad(const Rows& rows) const {
    const float* at = floats.data();
    return {rows.gpu_w.data(), rows.gpu_v.data(), at, at + 1, at + 2};
  }
  MomentumStep Momentum(const Rows& rows, bool has_slot, bool nesterov) const {
    const float* at = floats.data();
    return {rows.gpu_w.data(), has_slot ? rows.gpu_m.data() : nullptr, at, at + 3, at + 2,
            nesterov};
  }
};

// Compares one step of the CPU and of the GPU for each size, then times it.
template <class Arguments, class CpuArguments>
void CheckStep(Run* run, bool slot_is_per_row, double rows_moved, const Arguments& arguments,
               const CpuArguments& cpu_arguments) {
  const Hyperparameters hyperparameters;
  for (const Size& size : kSizes) {
    Rows rows(size, slot_is_per_row ? size.num_rows : size.num_rows * size.dim);
    const auto ids = RandomIds(size, true);
    const auto values = RandomFloats(size.num_ids * size.dim, 4, -1);
    const DeviceArray<float> gpu_values(values);
    const MergeOnGpu<int64_t> merge(ids, size, run->stream());
    const Status launched = UpdateRows(merge.merged, gpu_values.data(), size.dim,
                                       arguments(hyperparameters, rows), run->stream());
    UpdateRows(MergeOnCpu(ids, size.num_rows), values.data(), size.dim, cpu_arguments(&rows),
               SerialFor);
    run->Expect(Text(size) + " w", launched, rows.gpu_w, rows.w, kTolerance);
    run->Expect(Text(size) + " m", launched, rows.gpu_m, rows.m, kTolerance);
    run->Expect(Text(size) + " v", launched, rows.gpu_v, rows.v, kTolerance);
    run->Expect(Text(size) + " last_step", launched, rows.gpu_last_step, rows.last_step);
  }
  if (run->small()) return;
  const Size size{1000000, 131072, 128};
  const Rows rows(size, slot_is_per_row ? size.num_rows : size.num_rows * size.dim);
  const DeviceArray<float> gpu_values(RandomFloats(size.num_ids * size.dim, 4, -1));
  const auto time = [&](const std::vector<int64_t>& ids, const std::string& what) {
    const MergeOnGpu<int64_t> merge(ids, size, run->stream());
    run->ExpectOk("merge", merge.launched);
    const double unique = static_cast<double>(MergeOnCpu(ids, size.num_rows).size());
    const double bytes = 4.0 * static_cast<double>(size.dim) *
                         (static_cast<double>(size.num_ids) + rows_moved * unique);
    run->Time(Text(size) + what, {bytes, 0}, [&] {
      return UpdateRows(merge.merged, gpu_values.data(), size.dim,
                        arguments(hyperparameters, rows), run->stream());
    });
  };
  auto ids = RandomIds(size, false);
  time(ids, "");
  for (size_t i = 0; i < ids.size(); i += 2) ids[i] = 7;
  time(ids, " half of one row");
}

template <bool has_momentum, bool decays>
void CheckAdam(Run* run) {
  CheckStep(
      run, false, has_momentum ? 6 : 4,
      [](const Hyperparameters& h, const Rows& r) { return h.Adam(r, has_momentum, decays); },
      [](Rows* r) {
        return AdamArguments{r->w.data(), has_momentum ? r->m.data() : nullptr,
                             r->v.data(), decays ? r->last_step.data() : nullptr,
                             kStep,       kRate,
                             kBeta1,      kBeta2,
                             kEpsilon,    kWeightDecay};
      });
}

void CheckAdagrad(Run* run) {
  CheckStep(
      run, false, 4, [](const Hyperparameters& h, const Rows& r) { return h.Adagrad(r); },
      [](Rows* r) {
        return AdagradArguments{r->w.data(), r->v.data(), kRate, kEpsilon, kWeightDecay};
      });
}

void CheckRowwiseAdagrad(Run* run) {
  CheckStep(
      run, true, 2, [](const Hyperparameters& h, const Rows& r) { return h.RowwiseAdagrad(r); },
      [](Rows* r) {
        return RowwiseAdagradArguments{r->w.data(), r->v.data(), kRate, kEpsilon, kWeightDecay};
      });
}

template <bool has_slot, bool nesterov>
void CheckMomentum(Run* run) {
  CheckStep(
      run, false, has_slot ? 4 : 2,
      [](const Hyperparameters& h, const Rows& r) { return h.Momentum(r, has_slot, nesterov); },
      [](Rows* r) {
        return MomentumArguments{r->w.data(), has_slot ? r->m.data() : nullptr,
                                 kRate,       kDecay,
                                 nesterov,    kWeightDecay};
      });
}

template <class Index>
void CheckSumsOf(Run* run, const std::vector<int64_t>& ids, const Size& size) {
  const auto values = RandomFloats(size.num_ids * size.dim, 4, -1);
  const DeviceArray<float> gpu_values(values), sums(size.num_ids * size.dim);
  const DeviceArray<Index> unique(size.num_ids);
  const MergeOnGpu<Index> merge(ids, size, run->stream());
  const Status launched = SumRows(merge.merged, gpu_values.data(), size.dim, sums.data(),
                                  unique.data(), run->stream());
  largeout::MergedRows cpu = MergeOnCpu(ids, size.num_rows);
  std::vector<float> expected(size.num_ids * size.dim);
  largeout::SumRows(cpu, values.data(), size.dim, expected.data(), SerialFor);
  cpu.ids.resize(size.num_ids, -1);
  run->Expect(Text(size) + " sums", launched, sums, expected);
  run->Expect(Text(size) + " ids", launched, unique,
              std::vector<Index>(cpu.ids.begin(), cpu.ids.end()));
}

void CheckSumRows(Run* run) {
  for (const Size& size : kSizes) {
    CheckSumsOf<int32_t>(run, RandomIds(size, true), size);
    CheckSumsOf<int64_t>(run, RandomIds(size, true), size);
  }
  // Whole runs that begin and end at, before and after multiples of their length.
  const std::vector<int> counts[] = {{1, 63, 64, 65, 127, 128, 129, 2, 200, 64, 64, 62},
                                     {64, 1, 64, 63, 1000, 640}};
  for (const std::vector<int>& of_rows : counts) {
    std::vector<int64_t> ids;
    for (size_t row = 0; row < of_rows.size(); ++row) ids.insert(ids.end(), of_rows[row], row);
    const auto num_rows = static_cast<int64_t>(of_rows.size());
    CheckSumsOf<int64_t>(run, ids, {num_rows, static_cast<int64_t>(ids.size()), 3});
  }
}

const bool registered =
    Register("RowAdam", CheckAdam<true, false>) &&
    Register("RowAdamWithDecay", CheckAdam<true, true>) &&
    Register("RowAdamNoMomentum", CheckAdam<false, false>) &&
    Register("RowAdamNoMomentumWithDecay", CheckAdam<false, true>) &&
    Register("RowAdagrad", CheckAdagrad) && Register("RowwiseAdagrad", CheckRowwiseAdagrad) &&
    Register("RowMomentum", CheckMomentum<true, false>) &&
    Register("RowNesterov", CheckMomentum<true, true>) &&
    Register("RowDescent", CheckMomentum<false, false>) && Register("SumRows", CheckSumRows);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
