// The samplers that draw from a table.

#include <cmath>

#include "custom_ops/core/sampling/alias_table.h"
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

// slots, probability: [num_classes].
struct AliasTable {
  const AliasSlot* slots;
  const float* probability;
  int64_t num_classes;
};

// cumulative: [num_classes + 1]. index: [num_buckets + 1].
struct PivotalTable {
  const int64_t* cumulative;
  int64_t num_classes;
  const int64_t* index;
  int64_t num_buckets;
};

absl::Status ReadTable(OpKernelContext* ctx, AliasTable* table) {
  const Tensor &slots = ctx->input(2), &probability = ctx->input(3);
  const int64_t num_classes = probability.NumElements();
  if (slots.dims() != 2 || slots.dim_size(0) != num_classes || slots.dim_size(1) != 2 ||
      probability.dims() != 1 || num_classes == 0) {
    return InvalidArgument(
        "slots and probability must have shapes [num_classes, 2] and [num_classes], received ",
        slots.shape().DebugString(), " and ", probability.shape().DebugString());
  }
  *table = {reinterpret_cast<const AliasSlot*>(slots.flat<int64_t>().data()),
            probability.flat<float>().data(), num_classes};
  return absl::OkStatus();
}

absl::Status ReadTable(OpKernelContext* ctx, PivotalTable* table) {
  const Tensor &cumulative = ctx->input(2), &index = ctx->input(3);
  if (cumulative.dims() != 1 || cumulative.NumElements() < 2 || index.dims() != 1 ||
      index.NumElements() < 2) {
    return InvalidArgument(
        "cumulative and index must be vectors of at least 2 numbers, received ",
        cumulative.shape().DebugString(), " and ", index.shape().DebugString());
  }
  *table = {cumulative.flat<int64_t>().data(), cumulative.NumElements() - 1,
            index.flat<int64_t>().data(), index.NumElements() - 1};
  return absl::OkStatus();
}

// Table entries are ids, which may come from a damaged file.
absl::Status CheckDrawn(const int64_t* ids, int64_t size, int64_t num_classes) {
  for (int64_t i = 0; i < size; ++i) {
    if (ids[i] < 0 || ids[i] >= num_classes) {
      return tensorflow::errors::DataLoss("the alias table is damaged: it contains class ",
                                          ids[i], " of ", num_classes);
    }
  }
  return absl::OkStatus();
}

absl::Status Sample(OpKernelContext* ctx, const AliasTable& table, PhiloxSeed seed,
                    const SampledArrays& arrays) {
  if (!(table.probability[0] > 0)) {
    return FailedPrecondition("the alias table is empty: ", kHowToFill);
  }
  const auto draw = [&](int64_t* ids) {
    IntraOpParallel(ctx)(arrays.num_sampled, 300, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ids[i] = DrawFromAliasTable(table.slots, table.num_classes, BitsOfDraw(seed, i));
      }
    });
    return CheckDrawn(ids, arrays.num_sampled, table.num_classes);
  };
  const auto count = [&](int64_t c) { return arrays.num_sampled * table.probability[c]; };
  return WriteSampledValues(arrays, table.num_classes, draw, count);
}

absl::Status Sample(OpKernelContext* ctx, const PivotalTable& table, PhiloxSeed seed,
                    const SampledArrays& arrays) {
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
    SampleWithoutReplacement(sums, num_sampled, seed, IntraOpParallel(ctx), ids);
    return absl::OkStatus();
  };
  const auto count = [&](int64_t c) { return LengthInStrata(sums, c); };
  return WriteSampledValues(arrays, table.num_classes, draw, count);
}

// Table: AliasTable or PivotalTable.
template <class Table>
class TableSampleOp : public LargeoutOp {
 public:
  explicit TableSampleOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
  }

  void Run(OpKernelContext* ctx) override {
    Table table{};
    OP_REQUIRES_OK(ctx, ReadTable(ctx, &table));
    PhiloxSeed seed{};
    SampledArrays arrays{};
    OP_REQUIRES_OK(ctx, AllocateSampled(ctx, num_sampled_, &seed, &arrays));
    OP_REQUIRES_OK(ctx, Sample(ctx, table, seed, arrays));
  }

 private:
  int64_t num_sampled_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutAliasTable").Device(tensorflow::DEVICE_CPU),
                        AliasTableOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutPivotalTable").Device(tensorflow::DEVICE_CPU),
                        PivotalTableOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutAliasSample").Device(tensorflow::DEVICE_CPU),
                        TableSampleOp<AliasTable>);
REGISTER_KERNEL_BUILDER(Name("LargeoutPivotalSample").Device(tensorflow::DEVICE_CPU),
                        TableSampleOp<PivotalTable>);

}  // namespace
}  // namespace largeout
