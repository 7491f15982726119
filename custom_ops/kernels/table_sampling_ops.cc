#include "custom_ops/kernels/table_sampling_ops.h"

#include <cmath>

#include "custom_ops/core/sampling/cumulative_table.h"
#include "custom_ops/core/sampling/integer_masses.h"
#include "custom_ops/core/sampling/sampling.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::FailedPrecondition;
using tensorflow::errors::InvalidArgument;

constexpr char kHowToFill[] =
    "a UnigramSampler gets one from `counts`, from `adapt`, or from saved weights";

// Checks that weights are a vector of positive finite numbers for num_sampled draws.
absl::Status CheckWeights(const Tensor& weights, int64_t num_sampled) {
  constexpr int64_t kMaxClasses = int64_t{1} << 31;
  if (weights.dims() != 1 || weights.NumElements() < num_sampled ||
      weights.NumElements() > kMaxClasses) {
    return InvalidArgument("weights must be a vector of ", num_sampled, " to ", kMaxClasses,
                           " numbers, received shape ", weights.shape().DebugString());
  }
  const auto values = weights.vec<double>();
  double sum = 0;
  for (int64_t c = 0; c < values.size(); ++c) {
    if (!(values(c) > 0)) {
      return InvalidArgument("weights must be positive, received ", values(c), " for class ",
                             c);
    }
    sum += values(c);
  }
  if (!std::isfinite(sum)) {
    return InvalidArgument("the sum of the weights must be finite, received ", sum,
                           ": scale the weights down");
  }
  return absl::OkStatus();
}

class AliasTableOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    const Tensor& weights = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckWeights(weights, 1));
    const int64_t num_classes = weights.NumElements();
    Tensor masses, *slots, *probability;
    OP_REQUIRES_OK(ctx, ctx->allocate_temp(tensorflow::DT_INT64, {num_classes}, &masses));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {num_classes, 2}, &slots));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {num_classes}, &probability));
    int64_t* mass = masses.vec<int64_t>().data();
    IntegerMasses(weights.vec<double>().data(), num_classes, 1, mass);
    BuildAliasTable(mass, num_classes,
                    reinterpret_cast<AliasSlot*>(slots->matrix<int64_t>().data()));
    auto q = probability->vec<float>();
    for (int64_t c = 0; c < num_classes; ++c) {
      q(c) = static_cast<float>(static_cast<double>(mass[c]) / kAliasTotal);
    }
  }
};

class PivotalTableOp : public LargeoutOp {
 public:
  explicit PivotalTableOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_buckets", &num_buckets_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor& weights = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckWeights(weights, num_sampled_));
    const int64_t num_classes = weights.NumElements();
    Tensor *cumulative, *index;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {num_classes + 1}, &cumulative));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {num_buckets_ + 1}, &index));
    int64_t* sums = cumulative->vec<int64_t>().data();
    IntegerMasses(weights.vec<double>().data(), num_classes, num_sampled_, sums + 1);
    BuildCumulativeTable(sums + 1, num_classes, num_buckets_, sums,
                         index->vec<int64_t>().data());
  }

 private:
  int64_t num_sampled_;
  int64_t num_buckets_;
};

struct CpuTableSampling {
  using SampledArrays = largeout::SampledArrays;

  static absl::Status Sample(OpKernelContext* ctx, const AliasTable& table, const int64_t* seed,
                             const SampledArrays& arrays) {
    if (!(table.probability[0] > 0)) {
      return FailedPrecondition("the alias table is empty: ", kHowToFill);
    }
    const auto draw = [&](int64_t* ids) {
      IntraOpParallel(ctx)(arrays.num_sampled, 300, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          ids[i] =
              DrawFromAliasTable(table.slots, table.num_classes, BitsOfDraw(SeedFrom(seed), i));
        }
      });
      return CheckDrawn(ids, arrays.num_sampled, table.num_classes);
    };
    const auto count = [&](int64_t c) { return arrays.num_sampled * table.probability[c]; };
    return WriteSampledValues(arrays, table.num_classes, draw, count);
  }

  static absl::Status Sample(OpKernelContext* ctx, const PivotalTable& table,
                             const int64_t* seed, const SampledArrays& arrays) {
    const int64_t num_sampled = arrays.num_sampled;
    const int64_t sum = table.cumulative[table.num_classes];
    if (sum == 0) {
      return FailedPrecondition("the table of cumulative counts is empty: ", kHowToFill);
    }
    if (sum != num_sampled * StratumLength(num_sampled)) {
      return FailedPrecondition("the table of cumulative counts was not made for num_sampled=",
                                num_sampled, ": make a new one from the counts");
    }
    const CumulativeTable sums(table.cumulative, table.num_classes, table.index,
                               table.num_buckets, num_sampled);
    const auto draw = [&](int64_t* ids) {
      SampleWithoutReplacement(sums, num_sampled, SeedFrom(seed), IntraOpParallel(ctx), ids);
      return absl::OkStatus();
    };
    const auto count = [&](int64_t c) { return LengthInStrata(sums, c); };
    return WriteSampledValues(arrays, table.num_classes, draw, count);
  }

 private:
  // Table entries are ids, which may come from a damaged file.
  static absl::Status CheckDrawn(const int64_t* ids, int64_t size, int64_t num_classes) {
    for (int64_t i = 0; i < size; ++i) {
      if (ids[i] < 0 || ids[i] >= num_classes) {
        return tensorflow::errors::DataLoss("the alias table is damaged: it contains class ",
                                            ids[i], " of ", num_classes);
      }
    }
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutAliasTable").Device(tensorflow::DEVICE_CPU),
                        AliasTableOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutPivotalTable").Device(tensorflow::DEVICE_CPU),
                        PivotalTableOp);
LARGEOUT_REGISTER_TABLE_SAMPLING_OPS(tensorflow::DEVICE_CPU, CpuTableSampling);

}  // namespace
}  // namespace largeout
