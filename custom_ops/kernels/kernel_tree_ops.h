// The ops on kernel trees, for every device.
//
// A Device has kReadsBfloat16, whether the embeddings may be bfloat16, and these static
// functions, which return a status:
//
//   Build(ctx, KernelTreeRowsInput* in): checks the rows as far as the device allows, calls
//     in->AllowWrites after all checks, and writes all sums.
//   Update(ctx, ids, in, num_changed): the same for the leaves of the ids; num_changed is in
//     device memory, like ids.
//   Sample(ctx, TreeQuery query, TreeSample sample): draws, and checks labels and masses as far
//     as the device allows.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_KERNEL_TREE_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_KERNEL_TREE_OPS_H_

#include <cmath>
#include <limits>

#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/kernel_tree_input.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

template <class Device>
class KernelTreeBuildOp : public LargeoutOp {
 public:
  explicit KernelTreeBuildOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "leaf_size", &leaf_size_));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    KernelTreeRowsInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx, leaf_size_, Device::kReadsBfloat16));
    OP_REQUIRES_OK(ctx, Device::Build(ctx, &in));
  }

 private:
  int64_t leaf_size_;
};

template <class Device>
class KernelTreeUpdateOp : public LargeoutOp {
 public:
  explicit KernelTreeUpdateOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "leaf_size", &leaf_size_));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& ids = ctx->input(0);
    OP_REQUIRES(ctx, ids.dims() == 1, WrongShape(ids, "ids", "[num_ids]"));
    KernelTreeRowsInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx, leaf_size_, Device::kReadsBfloat16));
    tensorflow::Tensor* num_changed;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {}, &num_changed));
    OP_REQUIRES_OK(ctx, Device::Update(ctx, ids, &in, num_changed->flat<int64_t>().data()));
  }

 private:
  int64_t leaf_size_;
};

// The inputs of a draw. Features, labels and seed are in device memory.
struct TreeQuery {
  KernelTree tree;
  const tensorflow::Tensor& features;  // [batch, rows.dim]
  const tensorflow::Tensor& labels;    // [batch, num_labels]
  int64_t num_sampled;
  bool shared;
  const int64_t* seed;

  int64_t batch() const { return features.dim_size(0); }
  Features queries() const { return {features.flat<float>().data(), batch()}; }
  Labels followed() const { return {labels.flat<int64_t>().data(), labels.dim_size(1)}; }
};

template <class Device>
class KernelTreeSampleOp : public LargeoutOp {
 public:
  explicit KernelTreeSampleOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "leaf_size", &leaf_size_));
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shared", &shared_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("alpha", &alpha_));
    OP_REQUIRES(ctx, alpha_ > 0 && std::isfinite(alpha_),
                tensorflow::errors::InvalidArgument(
                    "alpha must be a finite number above 0, got ", alpha_));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor &features = ctx->input(0), &labels = ctx->input(1);
    const int64_t* seed = nullptr;
    KernelTreeInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, leaf_size_, features, Device::kReadsBfloat16));
    OP_REQUIRES_OK(ctx, CheckBatchMatrix(labels, "labels", features.dim_size(0), "features"));
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(2), &seed));
    OP_REQUIRES_OK(ctx, CheckSizes(features.dim_size(0), labels.dim_size(1)));
    tensorflow::Tensor *ids, *log_q, *label_log_q;
    OP_REQUIRES_OK(ctx, AllocateDraws(ctx, 0, features.dim_size(0), &ids));
    OP_REQUIRES_OK(ctx, AllocateDraws(ctx, 1, features.dim_size(0), &log_q));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, labels.shape(), &label_log_q));
    OP_REQUIRES_OK(
        ctx,
        Device::Sample(ctx, {input.tree(alpha_), features, labels, num_sampled_, shared_, seed},
                       {ids->flat<int64_t>().data(), log_q->flat<float>().data(),
                        label_log_q->flat<float>().data()}));
  }

 private:
  absl::Status CheckSizes(int64_t batch, int64_t num_labels) const {
    if (num_labels > std::numeric_limits<int32_t>::max() - num_sampled_) {
      return tensorflow::errors::InvalidArgument(
          "num_sampled plus the number of labels per example must be below 2^31, got ",
          num_sampled_, " and ", num_labels);
    }
    if (batch > 0 || !shared_) return absl::OkStatus();
    return tensorflow::errors::InvalidArgument(
        "a pool that the batch shares needs at least one example, got none");
  }

  absl::Status AllocateDraws(tensorflow::OpKernelContext* ctx, int output, int64_t batch,
                             tensorflow::Tensor** tensor) const {
    if (shared_) return AllocateOutput(ctx, output, {num_sampled_}, tensor);
    return AllocateOutput(ctx, output, {batch, num_sampled_}, tensor);
  }

  int64_t leaf_size_, num_sampled_;
  bool shared_;
  float alpha_;
};

// Registers the ops with a Device for the TensorFlow device `name`. Handles are in host memory.
#define LARGEOUT_REGISTER_KERNEL_TREE_OP(name, op, Kernel) \
  REGISTER_KERNEL_BUILDER(Name(op)                         \
                              .Device(name)                \
                              .HostMemory("embeddings")    \
                              .HostMemory("bias")          \
                              .HostMemory("projection")    \
                              .HostMemory("sums"),         \
                          Kernel)
#define LARGEOUT_REGISTER_KERNEL_TREE_OPS(name, Functions)           \
  LARGEOUT_REGISTER_KERNEL_TREE_OP(name, "LargeoutKernelTreeBuild",  \
                                   KernelTreeBuildOp<Functions>);    \
  LARGEOUT_REGISTER_KERNEL_TREE_OP(name, "LargeoutKernelTreeUpdate", \
                                   KernelTreeUpdateOp<Functions>);   \
  REGISTER_KERNEL_BUILDER(Name("LargeoutKernelTreeSample")           \
                              .Device(name)                          \
                              .HostMemory("embeddings")              \
                              .HostMemory("bias")                    \
                              .HostMemory("sums"),                   \
                          KernelTreeSampleOp<Functions>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_KERNEL_TREE_OPS_H_
