// The hash tables of an op that reads them through their variables' handles: in
// place, under a shared lock.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_LSH_TABLES_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_LSH_TABLES_INPUT_H_

#include <limits>
#include <optional>

#include "custom_ops/core/lsh_tables.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace largeout {

using VariablePtr = tensorflow::core::RefCountPtr<tensorflow::Var>;

inline absl::Status LookUpVariable(tensorflow::OpKernelContext* ctx, const char* name,
                                   VariablePtr* variable) {
  const tensorflow::Tensor* handle;
  TF_RETURN_IF_ERROR(ctx->input(name, &handle));
  return tensorflow::LookupResource(ctx, handle->scalar<tensorflow::ResourceHandle>()(),
                                    variable);
}

// Checks offsets [num_tables, 2^bits + 1] and ids [num_tables, num_classes].
inline absl::Status CheckTableShapes(const tensorflow::Tensor& offsets,
                                     const tensorflow::Tensor& ids) {
  const auto is_table = [](const tensorflow::Tensor& tensor) {
    return tensor.dtype() == tensorflow::DT_INT32 && tensor.dims() == 2;
  };
  const int64_t num_buckets = is_table(offsets) ? offsets.dim_size(1) - 1 : 0;
  if (!is_table(ids) || ids.dim_size(0) < 1 || ids.dim_size(0) != offsets.dim_size(0) ||
      ids.dim_size(1) < 1 || ids.dim_size(1) >= std::numeric_limits<int32_t>::max() ||
      num_buckets < 2 || (num_buckets & (num_buckets - 1)) != 0) {
    return tensorflow::errors::InvalidArgument(
        "offsets and ids must be initialised int32 variables [num_tables, 2^bits + 1] and "
        "[num_tables, num_classes], got ",
        tensorflow::DataTypeString(offsets.dtype()), " ", offsets.shape().DebugString(),
        " and ", tensorflow::DataTypeString(ids.dtype()), " ", ids.shape().DebugString());
  }
  return absl::OkStatus();
}

// Holds the locks as long as it lives.
class LshTablesInput {
 public:
  absl::Status Read(tensorflow::OpKernelContext* ctx) {
    TF_RETURN_IF_ERROR(LookUpVariable(ctx, "offsets", &offsets_));
    TF_RETURN_IF_ERROR(LookUpVariable(ctx, "ids", &ids_));
    tensorflow::mutex *first = offsets_->mu(), *second = ids_->mu();
    if (second < first) std::swap(first, second);  // as everywhere in TensorFlow
    first_lock_.emplace(*first);
    if (second != first) second_lock_.emplace(*second);
    return CheckTableShapes(*offsets_->tensor(), *ids_->tensor());
  }

  LshTables tables() const {
    const tensorflow::Tensor &offsets = *offsets_->tensor(), &ids = *ids_->tensor();
    return {offsets.flat<int32_t>().data(), ids.flat<int32_t>().data(), ids.dim_size(0),
            offsets.dim_size(1) - 1, ids.dim_size(1)};
  }

 private:
  VariablePtr offsets_, ids_;
  std::optional<tensorflow::tf_shared_lock> first_lock_, second_lock_;
};

// codes must be [batch, n * num_tables] with values below num_buckets.
inline absl::Status CheckCodes(const tensorflow::Tensor& codes, const LshTables& tables) {
  if (codes.dims() != 2 || codes.dim_size(1) % tables.num_tables != 0) {
    return tensorflow::errors::InvalidArgument("codes must be [batch, n * num_tables] with ",
                                               tables.num_tables, " tables, got ",
                                               codes.shape().DebugString());
  }
  const auto values = codes.flat<int32_t>();
  for (int64_t i = 0; i < values.size(); ++i) {
    if (values(i) >= tables.num_buckets) {
      return tensorflow::errors::InvalidArgument("codes must be below the number of buckets, ",
                                                 tables.num_buckets, ", got ", values(i));
    }
  }
  return absl::OkStatus();
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_LSH_TABLES_INPUT_H_
