// The samplers that draw from a table, for every device.
//
// A Device has SampledArrays, see sampling_ops.h, and the static function
// Sample(ctx, table, seed, arrays) for each kind of table, which writes them and returns a
// status.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_TABLE_SAMPLING_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_TABLE_SAMPLING_OPS_H_

#include "custom_ops/core/sampling/alias_table.h"
#include "custom_ops/kernels/sampling_ops.h"

namespace largeout {

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

inline absl::Status ReadTable(tensorflow::OpKernelContext* ctx, AliasTable* table) {
  const tensorflow::Tensor &slots = ctx->input(2), &probability = ctx->input(3);
  const int64_t num_classes = probability.NumElements();
  if (slots.dims() != 2 || slots.dim_size(0) != num_classes || slots.dim_size(1) != 2 ||
      probability.dims() != 1 || num_classes == 0) {
    return tensorflow::errors::InvalidArgument(
        "slots and probability must have shapes [num_classes, 2] and [num_classes], received ",
        slots.shape().DebugString(), " and ", probability.shape().DebugString());
  }
  *table = {reinterpret_cast<const AliasSlot*>(slots.flat<int64_t>().data()),
            probability.flat<float>().data(), num_classes};
  return absl::OkStatus();
}

inline absl::Status ReadTable(tensorflow::OpKernelContext* ctx, PivotalTable* table) {
  const tensorflow::Tensor &cumulative = ctx->input(2), &index = ctx->input(3);
  if (cumulative.dims() != 1 || cumulative.NumElements() < 2 || index.dims() != 1 ||
      index.NumElements() < 2) {
    return tensorflow::errors::InvalidArgument(
        "cumulative and index must be vectors of at least 2 numbers, received ",
        cumulative.shape().DebugString(), " and ", index.shape().DebugString());
  }
  *table = {cumulative.flat<int64_t>().data(), cumulative.NumElements() - 1,
            index.flat<int64_t>().data(), index.NumElements() - 1};
  return absl::OkStatus();
}

// Table: AliasTable or PivotalTable.
template <class Device, class Table>
class TableSampleOp : public LargeoutOp {
 public:
  explicit TableSampleOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    Table table{};
    OP_REQUIRES_OK(ctx, ReadTable(ctx, &table));
    const int64_t* seed = nullptr;
    typename Device::SampledArrays arrays{};
    OP_REQUIRES_OK(ctx, AllocateSampled(ctx, num_sampled_, &seed, &arrays));
    OP_REQUIRES_OK(ctx, Device::Sample(ctx, table, seed, arrays));
  }

 private:
  int64_t num_sampled_;
};

// Registers the ops with a Device for the TensorFlow device `name`.
#define LARGEOUT_REGISTER_TABLE_SAMPLING_OPS(name, Functions)         \
  REGISTER_KERNEL_BUILDER(Name("LargeoutAliasSample").Device(name),   \
                          TableSampleOp<Functions, AliasTable>);      \
  REGISTER_KERNEL_BUILDER(Name("LargeoutPivotalSample").Device(name), \
                          TableSampleOp<Functions, PivotalTable>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_TABLE_SAMPLING_OPS_H_
