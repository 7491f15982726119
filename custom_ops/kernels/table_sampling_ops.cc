#include <cmath>

#include "custom_ops/core/alias_table.h"
#include "custom_ops/core/cumulative_table.h"
#include "custom_ops/core/integer_masses.h"
#include "custom_ops/core/sampling.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/sampled_values.h"
#include "custom_ops/kernels/table_sampling_input.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::errors::FailedPrecondition;
using tensorflow::errors::InvalidArgument;

constexpr char kHowToFill[] =
    "a UnigramSampler gets one from `counts`, from `adapt`, or from saved weights";

// Checks that weights are a vector of positive finite numbers for num_sampled draws.
Status CheckWeights(const Tensor& weights, int64_t num_sampled) {
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
  if (!std::isfinite(sum)) return InvalidArgument("the sum of the weights is not finite");
  return tensorflow::OkStatus();
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

class AliasSampleOp : public LargeoutOp {
 public:
  explicit AliasSampleOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor& slots = ctx->input(2);
    OP_REQUIRES_OK(ctx, CheckAliasTable(slots, ctx->input(3)));
    const int64_t num_classes = ctx->input(3).NumElements();
    PhiloxSeed seed;
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(1), &seed));
    OP_REQUIRES_OK(ctx, CheckTrueClasses(ctx->input(0), num_classes));
    const auto* table = reinterpret_cast<const AliasSlot*>(slots.matrix<int64_t>().data());
    const auto probability = ctx->input(3).vec<float>();
    OP_REQUIRES(ctx, probability(0) > 0,
                FailedPrecondition("the alias table is empty: ", kHowToFill));
    const auto draw = [&](int64_t* ids) {
      IntraOpParallel(ctx)(num_sampled_, 300, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          ids[i] = DrawFromAliasTable(table, num_classes, BitsOfDraw(seed, i));
        }
      });
      return CheckDrawn(ids, num_classes);
    };
    const auto count = [&](int64_t c) { return num_sampled_ * probability(c); };
    OP_REQUIRES_OK(ctx, WriteSampledValues(ctx, num_sampled_, draw, count));
  }

 private:
  // Table entries are ids that come from a file.
  Status CheckDrawn(const int64_t* ids, int64_t num_classes) const {
    for (int64_t i = 0; i < num_sampled_; ++i) {
      if (ids[i] < 0 || ids[i] >= num_classes) {
        return tensorflow::errors::DataLoss("the alias table is damaged: it holds class ",
                                            ids[i], " of ", num_classes);
      }
    }
    return tensorflow::OkStatus();
  }

  int64_t num_sampled_;
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

class PivotalSampleOp : public LargeoutOp {
 public:
  explicit PivotalSampleOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor& cumulative = ctx->input(2);
    const Tensor& index = ctx->input(3);
    OP_REQUIRES_OK(ctx, CheckPivotalTable(cumulative, index));
    const auto sums = cumulative.vec<int64_t>();
    const int64_t num_classes = sums.size() - 1;
    const int64_t stratum = StratumLength(num_sampled_);
    PhiloxSeed seed;
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(1), &seed));
    OP_REQUIRES_OK(ctx, CheckTrueClasses(ctx->input(0), num_classes));
    OP_REQUIRES(ctx, sums(num_classes) != 0,
                FailedPrecondition("the table of cumulative counts is empty: ", kHowToFill));
    OP_REQUIRES(ctx, sums(num_classes) == num_sampled_ * stratum,
                FailedPrecondition("the table of cumulative counts was not made for "
                                   "num_sampled=",
                                   num_sampled_, ": make it anew from the counts"));
    const CumulativeTable table(sums.data(), num_classes, index.vec<int64_t>().data(),
                                index.NumElements() - 1, num_sampled_);
    const auto draw = [&](int64_t* ids) {
      SampleWithoutReplacement(table, num_sampled_, seed, IntraOpParallel(ctx), ids);
      return tensorflow::OkStatus();
    };
    const auto count = [&](int64_t c) { return LengthInStrata(table, c); };
    OP_REQUIRES_OK(ctx, WriteSampledValues(ctx, num_sampled_, draw, count));
  }

 private:
  int64_t num_sampled_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutAliasTable").Device(tensorflow::DEVICE_CPU),
                        AliasTableOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutAliasSample").Device(tensorflow::DEVICE_CPU),
                        AliasSampleOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutPivotalTable").Device(tensorflow::DEVICE_CPU),
                        PivotalTableOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutPivotalSample").Device(tensorflow::DEVICE_CPU),
                        PivotalSampleOp);

}  // namespace
}  // namespace largeout
