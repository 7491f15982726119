// The ops of inverted files.

#include <algorithm>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/inverted_file_input.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

class InvertedFileSearchOp : public LargeoutOp {
 public:
  explicit InvertedFileSearchOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_probes", &num_probes_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    InvertedFileInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    OP_REQUIRES_OK(ctx, input.CheckLists());
    OP_REQUIRES_OK(ctx, CheckWidth(features, "features", input.dim(), "means"));
    int64_t k = 0;
    OP_REQUIRES_OK(ctx, ReadK(ctx, &k));
    Tensor *scores, *ids;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {features.dim_size(0), k}, &scores));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {features.dim_size(0), k}, &ids));
    SearchLists(input.file(), {features.flat<float>().data(), features.dim_size(0)},
                input.dim(), num_probes_, k, IntraOpParallel(ctx), scores->flat<float>().data(),
                ids->flat<int64_t>().data());
  }

 private:
  static absl::Status ReadK(OpKernelContext* ctx, int64_t* k) {
    const Tensor* input;
    TF_RETURN_IF_ERROR(ctx->input("k", &input));
    TF_RETURN_IF_ERROR(CheckScalar(*input, "k"));
    *k = input->scalar<int64_t>()();
    return CheckCount("k", *k);
  }

  int64_t num_probes_;
};

// The base of the ops that write the file. The class matrix is read under its locks, then the
// file and the schedule are written under theirs. Alternatively, all inputs are tensors, copies
// of variables on another device, and the outputs are written.
class InvertedFileUpdateOp : public LargeoutOp {
 public:
  explicit InvertedFileUpdateOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("unit_length", &unit_length_));
  }

  void Run(OpKernelContext* ctx) override {
    InvertedFileInput input;
    ClassMatrixInput classes;
    OP_REQUIRES_OK(ctx, CheckDistinctVariables(ctx));
    OP_REQUIRES_OK(ctx, classes.Read(ctx, true));
    if (ctx->input_dtype(0) == tensorflow::DT_RESOURCE) {
      OP_REQUIRES_OK(ctx, input.ReadForWriting(ctx));
    } else {
      OP_REQUIRES_OK(ctx, input.CopyToOutputs(ctx));
    }
    const ClassMatrix matrix = classes.matrix();
    InvertedFile file = input.file();
    file.unit_length = unit_length_;
    const int64_t num_classes = file.rows.num_rows;
    OP_REQUIRES(ctx, matrix.num_classes == num_classes && matrix.dim == input.dim(),
                InvalidArgument("embeddings must be [", num_classes, ", ", input.dim(),
                                "], the shape that the inverted file was made for, got [",
                                matrix.num_classes, ", ", matrix.dim, "]"));
    OP_REQUIRES_OK(ctx, CheckSchedule(input.schedule()));
    try {
      Update(matrix, file, IntraOpParallel(ctx), input.schedule());
    } catch (...) {  // the parts are inconsistent: reset to the state before the first fit
      std::fill_n(file.offsets, file.num_lists + 1, 0);
      throw;
    }
  }

 protected:
  // schedule: the number of the next step, and that of the last fit, or -1.
  virtual void Update(const ClassMatrix& matrix, const InvertedFile& file,
                      const ParallelFor& parallel, int64_t* schedule) = 0;

 private:
  // Limits them so that their sums cannot overflow.
  static absl::Status CheckSchedule(const int64_t* schedule) {
    constexpr int64_t kMostSteps = int64_t{1} << 62;
    const int64_t step = schedule[0], fitted = schedule[1];
    if (step >= 0 && step < kMostSteps && fitted >= -1 && fitted < kMostSteps) {
      return absl::OkStatus();
    }
    return InvalidArgument(
        "schedule must be [the number of the next step, the step of the last fit or -1], from "
        "0 or -1 to 2^62 - 1, got [",
        step, ", ", fitted, "]");
  }

  bool unit_length_;
};

// Fits the lists in step number `step`.
void Fit(const ClassMatrix& matrix, const InvertedFile& file, const ParallelFor& parallel,
         int64_t step, int64_t* schedule) {
  FitLists(matrix, {static_cast<uint64_t>(step), 0}, parallel, file);
  schedule[1] = step;
}

class InvertedFileFitOp : public InvertedFileUpdateOp {
 public:
  using InvertedFileUpdateOp::InvertedFileUpdateOp;

 protected:
  void Update(const ClassMatrix& matrix, const InvertedFile& file, const ParallelFor& parallel,
              int64_t* schedule) override {
    Fit(matrix, file, parallel, schedule[0], schedule);
  }
};

class InvertedFileUpkeepOp : public InvertedFileUpdateOp {
 public:
  explicit InvertedFileUpkeepOp(OpKernelConstruction* ctx) : InvertedFileUpdateOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "interval", &interval_));
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "rows_a_step", &rows_a_step_));
  }

 protected:
  void Update(const ClassMatrix& matrix, const InvertedFile& file, const ParallelFor& parallel,
              int64_t* schedule) override {
    const int64_t step = schedule[0]++, fitted = schedule[1];
    const bool has_lists = fitted >= 0 && file.offsets[file.num_lists] > 0;
    const bool is_turn = step > fitted && (step - fitted) % interval_ == 0;
    bool stale = !has_lists;
    if (!stale && is_turn) stale = !FollowRows(matrix, file, parallel, step - fitted);
    if (stale) Fit(matrix, file, parallel, step, schedule);
  }

 private:
  // Reassigns the rows that are due this many steps after the fit. Returns whether the lists
  // still match these rows.
  bool FollowRows(const ClassMatrix& matrix, const InvertedFile& file,
                  const ParallelFor& parallel, int64_t age) {
    const int64_t count = std::min(interval_ * rows_a_step_, matrix.num_classes);
    const int64_t turn = (age / interval_ - 1) % matrix.num_classes;
    const int64_t begin = turn * count % matrix.num_classes;
    const int64_t moved = UpdateLists(matrix, begin, count, parallel, file);
    const bool first_turn = age < CeilDiv(matrix.num_classes, rows_a_step_);
    return first_turn || moved * 10 < count * 9;
  }

  int64_t interval_, rows_a_step_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutInvertedFileSearch").Device(tensorflow::DEVICE_CPU),
                        InvertedFileSearchOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutInvertedFileFit").Device(tensorflow::DEVICE_CPU),
                        InvertedFileFitOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutInvertedFileUpkeep").Device(tensorflow::DEVICE_CPU),
                        InvertedFileUpkeepOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutInvertedFileFitted").Device(tensorflow::DEVICE_CPU),
                        InvertedFileFitOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutInvertedFileKeptUp").Device(tensorflow::DEVICE_CPU),
                        InvertedFileUpkeepOp);

}  // namespace
}  // namespace largeout
