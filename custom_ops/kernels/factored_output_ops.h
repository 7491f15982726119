// The ops on a factored output layer, for every device.
//
// A Device has
//
//   kUsesHugePages: whether the variables are in host memory;
//
// and these static functions, which return a status:
//
//   Copy(ctx, from, to): copies a variable, in order with the op's work.
//   Score(ctx, const FactoredOutputInput& in, FactoredScores scores, version): checks ids and
//     features, and writes the outputs of the op.
//   Step(ctx, const FactoredOutputInput& in, const FactoredStep& step, by_features): checks all
//     values, writes the gradient, then, if requested, writes all variables or none, and then
//     makes the folds that U needs.
//   HasFolds(ctx, log, bool* has_folds).
//   TakeFolds(ctx, const FactoredOutputInput& in): applies all folds to all rows.
//   TakeFolds(ctx, const FactoredFolds& folds, seen, vectors): the same for a matrix.
//
// Pointers are to device memory.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_FACTORED_OUTPUT_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_FACTORED_OUTPUT_OPS_H_

#include <cmath>

#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/factored_output_checks.h"
#include "custom_ops/kernels/factored_output_input.h"
#include "custom_ops/kernels/huge_pages.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

template <class Device>
class FactoredOutputScoresOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    FactoredOutputInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    FactoredScores scores;
    tensorflow::Tensor* version;
    OP_REQUIRES_OK(ctx, Allocate(ctx, "q", {in.batch()}, &scores.q));
    OP_REQUIRES_OK(ctx, Allocate(ctx, "s", {in.batch()}, &scores.s));
    OP_REQUIRES_OK(ctx, Allocate(ctx, "a", {in.batch(), in.num_targets()}, &scores.a));
    OP_REQUIRES_OK(
        ctx, Allocate(ctx, "gram_features", {in.batch(), in.width()}, &scores.gram_features));
    OP_REQUIRES_OK(
        ctx, Allocate(ctx, "mixed_features", {in.batch(), in.width()}, &scores.mixed_features));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, "version", {}, &version));
    OP_REQUIRES_OK(ctx, Device::Score(ctx, in, scores, version->flat<int64_t>().data()));
  }

 private:
  static absl::Status Allocate(tensorflow::OpKernelContext* ctx, const char* output,
                               std::initializer_list<int64_t> sizes, double** data) {
    tensorflow::Tensor* tensor;
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, output, sizes, &tensor));
    *data = tensor->flat<double>().data();
    return absl::OkStatus();
  }
};

template <class Device>
class FactoredOutputStepOp : public LargeoutOp {
 public:
  explicit FactoredOutputStepOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("update", &update_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("min_pivot", &min_pivot_));
    OP_REQUIRES(ctx, min_pivot_ > 0 && std::isfinite(min_pivot_),
                tensorflow::errors::InvalidArgument(
                    "min_pivot must be a finite number above 0, got ", min_pivot_));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    FactoredOutputInput in;
    if (update_) {
      OP_REQUIRES_OK(ctx, in.ReadToWrite(ctx, [ctx](const auto& from, auto* to) {
        return Device::Copy(ctx, from, to);
      }));
      if (Device::kUsesHugePages) huge_pages_.Ask(in.vectors());
    } else {
      OP_REQUIRES_OK(ctx, in.Read(ctx));
    }
    const int64_t batch = in.batch();
    FactoredStep step{};
    FactoredSlopes* slopes = &step.slopes;
    OP_REQUIRES_OK(ctx, ReadInput(ctx, "by_q", {batch}, &slopes->by_q));
    OP_REQUIRES_OK(ctx, ReadInput(ctx, "by_s", {batch}, &slopes->by_s));
    OP_REQUIRES_OK(ctx, ReadInput(ctx, "by_a", {batch, in.num_targets()}, &slopes->by_a));
    OP_REQUIRES_OK(
        ctx, ReadInput(ctx, "gram_features", {batch, in.width()}, &slopes->gram_features));
    OP_REQUIRES_OK(
        ctx, ReadInput(ctx, "mixed_features", {batch, in.width()}, &slopes->mixed_features));
    OP_REQUIRES_OK(ctx, ReadInput(ctx, "version", {}, &step.version));
    OP_REQUIRES_OK(ctx, ReadInput(ctx, "learning_rate", {}, &step.learning_rate));
    step.min_pivot = min_pivot_;
    step.update = update_;
    tensorflow::Tensor* by_features;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {batch, in.dim()}, &by_features));
    if (batch == 0) return;
    OP_REQUIRES_OK(ctx, Device::Step(ctx, in, step, by_features->flat<double>().data()));
  }

 private:
  template <typename Number>
  static absl::Status ReadInput(tensorflow::OpKernelContext* ctx, const char* name,
                                const tensorflow::TensorShape& shape, const Number** data) {
    const tensorflow::Tensor* input;
    TF_RETURN_IF_ERROR(ctx->input(name, &input));
    *data = input->flat<Number>().data();
    return CheckShape(*input, name, shape);
  }

  bool update_;
  float min_pivot_;
  HugePages huge_pages_;
};

template <class Device>
class FactoredOutputTakeFoldsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    FactoredOutputInput in;
    OP_REQUIRES_OK(ctx, in.LockState(ctx));
    bool has_folds = false;
    OP_REQUIRES_OK(ctx, Device::HasFolds(ctx, in.folds(), &has_folds));
    if (!has_folds) return;
    OP_REQUIRES_OK(ctx, in.AllowWrites(ctx, [ctx](const auto& from, auto* to) {
      return Device::Copy(ctx, from, to);
    }));
    OP_REQUIRES_OK(ctx, Device::TakeFolds(ctx, in));
  }
};

template <class Device>
class FactoredOutputVectorsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor &vectors = ctx->input(0), &folds = ctx->input(1);
    const tensorflow::Tensor& seen = ctx->input(2);
    OP_REQUIRES(ctx, vectors.dims() == 2, WrongShape(vectors, "vectors", "a matrix"));
    OP_REQUIRES_OK(ctx, CheckFactoredFolds(folds, vectors.dim_size(1)));
    OP_REQUIRES_OK(ctx, CheckShape(seen, "seen", {vectors.dim_size(0)}));
    bool has_folds = false;
    OP_REQUIRES_OK(ctx, Device::HasFolds(ctx, folds.flat<double>().data(), &has_folds));
    if (!has_folds) return ctx->set_output(0, vectors);
    tensorflow::Tensor* current;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, vectors.shape(), &current));
    OP_REQUIRES_OK(ctx, Device::Copy(ctx, vectors, current));
    const FactoredFolds log = {const_cast<double*>(folds.flat<double>().data()),
                               folds.dim_size(0) - 1, vectors.dim_size(1)};
    const uint32_t* const of_rows = seen.flat<uint32_t>().data();
    OP_REQUIRES_OK(ctx, vectors.dtype() == tensorflow::DT_FLOAT
                            ? Device::TakeFolds(ctx, log, of_rows, current->matrix<float>())
                            : Device::TakeFolds(ctx, log, of_rows, current->matrix<double>()));
  }
};

// Registers the ops with a Device for the TensorFlow device `name`. Handles are in host memory.
#define LARGEOUT_REGISTER_FACTORED_OUTPUT_OP(name, op, Kernel) \
  REGISTER_KERNEL_BUILDER(Name(op)                             \
                              .Device(name)                    \
                              .HostMemory("vectors")           \
                              .HostMemory("mixing")            \
                              .HostMemory("inverse")           \
                              .HostMemory("offset")            \
                              .HostMemory("total")             \
                              .HostMemory("gram")              \
                              .HostMemory("steps")             \
                              .HostMemory("folds")             \
                              .HostMemory("seen"),             \
                          Kernel)
#define LARGEOUT_REGISTER_FACTORED_OUTPUT_OPS(name, Functions)                  \
  LARGEOUT_REGISTER_FACTORED_OUTPUT_OP(name, "LargeoutFactoredOutputScores",    \
                                       FactoredOutputScoresOp<Functions>);      \
  LARGEOUT_REGISTER_FACTORED_OUTPUT_OP(name, "LargeoutFactoredOutputStep",      \
                                       FactoredOutputStepOp<Functions>);        \
  LARGEOUT_REGISTER_FACTORED_OUTPUT_OP(name, "LargeoutFactoredOutputTakeFolds", \
                                       FactoredOutputTakeFoldsOp<Functions>);   \
  REGISTER_KERNEL_BUILDER(Name("LargeoutFactoredOutputVectors").Device(name),   \
                          FactoredOutputVectorsOp<Functions>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_FACTORED_OUTPUT_OPS_H_
