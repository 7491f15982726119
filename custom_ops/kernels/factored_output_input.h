// The inputs of the ops on a factored output layer: its variables, in place and locked, and a
// batch.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_FACTORED_OUTPUT_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_FACTORED_OUTPUT_INPUT_H_

#include <limits>

#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/factored_output_checks.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/variable_locks.h"

namespace largeout {

// Holds the locks during its lifetime.
class FactoredOutputInput {
 public:
  // Reads inputs `features`, `ids` and the variables. Checks their shapes, but not their
  // values.
  absl::Status Read(tensorflow::OpKernelContext* ctx) {
    TF_RETURN_IF_ERROR(FindVariables(ctx));
    variables_.LockShared();
    TF_RETURN_IF_ERROR(CheckState());
    return ReadBatch(ctx);
  }

  // The same for ops that write variables. copy: see LockedVariables::AllowWrites.
  template <class Copy>
  absl::Status ReadToWrite(tensorflow::OpKernelContext* ctx, const Copy& copy) {
    TF_RETURN_IF_ERROR(LockState(ctx));
    TF_RETURN_IF_ERROR(AllowWrites(ctx, copy));
    return ReadBatch(ctx);
  }

  // Locks only the variables, which may be written after AllowWrites.
  absl::Status LockState(tensorflow::OpKernelContext* ctx) {
    TF_RETURN_IF_ERROR(FindVariables(ctx));
    variables_.Lock();
    return CheckState();
  }
  template <class Copy>
  absl::Status AllowWrites(tensorflow::OpKernelContext* ctx, const Copy& copy) const {
    return variables_.AllowWrites(ctx, copy);
  }

  int64_t batch() const { return features_->dim_size(0); }
  int64_t dim() const { return features_->dim_size(1); }
  int64_t num_targets() const { return ids_->dim_size(1); }
  int64_t num_classes() const { return vectors().dim_size(0); }
  const tensorflow::Tensor& vectors() const { return *variables_.tensor(0); }
  int64_t width() const { return vectors().dim_size(1); }
  const tensorflow::Tensor& features() const { return *features_; }
  const tensorflow::Tensor& ids() const { return *ids_; }
  int64_t* steps() const { return variables_.tensor(6)->flat<int64_t>().data(); }

  const double* folds() const { return variables_.tensor(7)->flat<double>().data(); }

  // Returns call(FactoredState<float or double>).
  template <class Call>
  absl::Status WithState(const Call& call) const {
    if (vectors().dtype() == tensorflow::DT_FLOAT) return call(State<float>());
    return call(State<double>());
  }

 private:
  absl::Status FindVariables(tensorflow::OpKernelContext* ctx) {
    TF_RETURN_IF_ERROR(CheckDistinctVariables(ctx));
    for (const char* name : {"vectors", "mixing", "inverse", "offset", "total", "gram", "steps",
                             "folds", "seen"}) {
      TF_RETURN_IF_ERROR(variables_.Find(ctx, name));
    }
    return absl::OkStatus();
  }

  absl::Status ReadBatch(tensorflow::OpKernelContext* ctx) {
    TF_RETURN_IF_ERROR(ctx->input("features", &features_));
    TF_RETURN_IF_ERROR(ctx->input("ids", &ids_));
    return CheckBatch();
  }

  absl::Status CheckState() const {
    const tensorflow::Tensor& value = vectors();
    const bool is_real =
        value.dtype() == tensorflow::DT_FLOAT || value.dtype() == tensorflow::DT_DOUBLE;
    if (!value.IsInitialized() || !is_real || value.dims() != 2 || value.NumElements() == 0) {
      return tensorflow::errors::InvalidArgument(
          "vectors must be an initialised float or double variable [num_classes, width] with a "
          "class and a width of 1 or more, got ",
          tensorflow::DataTypeString(value.dtype()), " ", value.shape().DebugString());
    }
    TF_RETURN_IF_ERROR(Check(1, "mixing", {width(), width()}));
    TF_RETURN_IF_ERROR(Check(2, "inverse", {width(), width()}));
    TF_RETURN_IF_ERROR(Check(3, "offset", {width()}));
    TF_RETURN_IF_ERROR(Check(4, "total", {width()}));
    TF_RETURN_IF_ERROR(Check(5, "gram", {width(), width()}));
    TF_RETURN_IF_ERROR(CheckVariable(*variables_.tensor(6), "steps", tensorflow::DT_INT64, {}));
    TF_RETURN_IF_ERROR(
        CheckVariable(*variables_.tensor(8), "seen", tensorflow::DT_UINT32, {num_classes()}));
    return CheckFactoredFolds(*variables_.tensor(7), width());
  }

  absl::Status Check(int i, const char* name, const tensorflow::TensorShape& shape) const {
    return CheckVariable(*variables_.tensor(i), name, tensorflow::DT_DOUBLE, shape);
  }

  absl::Status CheckBatch() const {
    if (features_->dims() != 2 || (dim() != width() && dim() != width() - 1)) {
      return WrongShape(*features_, "features", "[batch, dim] with dim ", width(),
                        ", as the vectors are wide, or one less where the layer has a bias");
    }
    TF_RETURN_IF_ERROR(CheckBatchMatrix(*ids_, "ids", batch(), "features"));
    if (ids_->NumElements() <= std::numeric_limits<int32_t>::max()) return absl::OkStatus();
    return WrongShape(*ids_, "ids", "fewer than 2^31 numbers");
  }

  template <class Number>
  FactoredState<Number> State() const {
    const auto doubles = [&](int i) { return variables_.tensor(i)->flat<double>().data(); };
    return {variables_.tensor(0)->flat<Number>().data(),
            doubles(1),
            doubles(2),
            doubles(3),
            doubles(4),
            doubles(5),
            num_classes(),
            width(),
            {doubles(7), variables_.tensor(7)->dim_size(0) - 1, width()},
            variables_.tensor(8)->flat<uint32_t>().data()};
  }

  LockedVariables variables_;
  const tensorflow::Tensor *features_ = nullptr, *ids_ = nullptr;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_FACTORED_OUTPUT_INPUT_H_
