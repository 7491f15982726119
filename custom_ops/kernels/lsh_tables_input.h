// The hash tables of an op that reads them through their variables' handles: in
// place, under a shared lock.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_LSH_TABLES_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_LSH_TABLES_INPUT_H_

#include <limits>
#include <optional>
#include <utility>

#include "custom_ops/core/lsh_query.h"
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

// Tables are uint32 variables, since TensorFlow keeps those of int32 off the GPU. No number in
// them reaches 2^31, so core takes their bits as int32.
inline const int32_t* TableNumbers(const tensorflow::Tensor& table) {
  return reinterpret_cast<const int32_t*>(table.flat<uint32_t>().data());
}
inline int32_t* MutableTableNumbers(tensorflow::Tensor* table) {
  return reinterpret_cast<int32_t*>(table->flat<uint32_t>().data());
}

// Checks offsets [num_tables, 2^bits + 1] and ids [num_tables, num_classes].
inline absl::Status CheckTableShapes(const tensorflow::Tensor& offsets,
                                     const tensorflow::Tensor& ids) {
  const auto is_table = [](const tensorflow::Tensor& tensor) {
    return tensor.dtype() == tensorflow::DT_UINT32 && tensor.dims() == 2;
  };
  const int64_t num_buckets = is_table(offsets) ? offsets.dim_size(1) - 1 : 0;
  if (!is_table(ids) || ids.dim_size(0) < 1 || ids.dim_size(0) != offsets.dim_size(0) ||
      ids.dim_size(1) < 1 || ids.dim_size(1) >= std::numeric_limits<int32_t>::max() ||
      num_buckets < 2 || (num_buckets & (num_buckets - 1)) != 0) {
    return tensorflow::errors::InvalidArgument(
        "offsets and ids must be initialised uint32 variables [num_tables, 2^bits + 1] and "
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
    return {TableNumbers(offsets), TableNumbers(ids), ids.dim_size(0), offsets.dim_size(1) - 1,
            ids.dim_size(1)};
  }

 private:
  VariablePtr offsets_, ids_;
  std::optional<tensorflow::tf_shared_lock> first_lock_, second_lock_;
};

// codes must be [batch, n * num_tables].
inline absl::Status CheckCodesShape(const tensorflow::Tensor& codes, const LshTables& tables) {
  if (codes.dims() == 2 && codes.dim_size(1) % tables.num_tables == 0) return absl::OkStatus();
  return tensorflow::errors::InvalidArgument("codes must be [batch, n * num_tables] with ",
                                             tables.num_tables, " tables, got ",
                                             codes.shape().DebugString());
}

// Also with values below num_buckets; codes in the memory of the host.
inline absl::Status CheckCodes(const tensorflow::Tensor& codes, const LshTables& tables) {
  TF_RETURN_IF_ERROR(CheckCodesShape(codes, tables));
  const auto values = codes.flat<int32_t>();
  for (int64_t i = 0; i < values.size(); ++i) {
    if (values(i) >= tables.num_buckets) {
      return tensorflow::errors::InvalidArgument("codes must be below the number of buckets, ",
                                                 tables.num_buckets, ", got ", values(i));
    }
  }
  return absl::OkStatus();
}

// The shapes of a query. codes must be as above, labels [batch, num_labels].
inline absl::Status CheckQueryShapes(const tensorflow::Tensor& codes,
                                     const tensorflow::Tensor& labels,
                                     const LshTables& tables) {
  TF_RETURN_IF_ERROR(CheckCodesShape(codes, tables));
  if (labels.dims() != 2 || labels.dim_size(0) != codes.dim_size(0)) {
    return tensorflow::errors::InvalidArgument("labels must be [batch, num_labels] with batch ",
                                               codes.dim_size(0), " as in the codes, got ",
                                               labels.shape().DebugString());
  }
  if (codes.dim_size(1) <= kMostCodes) return absl::OkStatus();
  return tensorflow::errors::InvalidArgument("a row may have at most ", kMostCodes,
                                             " codes, got ", codes.dim_size(1));
}

// codes must be [num_rows, num_tables] and row_ids [num_rows].
inline absl::Status CheckRowShapes(const tensorflow::Tensor& codes,
                                   const tensorflow::Tensor& row_ids, const LshTables& tables) {
  if (row_ids.dims() == 1 && codes.dims() == 2 && codes.dim_size(0) == row_ids.dim_size(0) &&
      codes.dim_size(1) == tables.num_tables) {
    return absl::OkStatus();
  }
  return tensorflow::errors::InvalidArgument(
      "codes must be [num_rows, ", tables.num_tables, "] and row_ids [num_rows], got ",
      codes.shape().DebugString(), " and ", row_ids.shape().DebugString());
}

// codes [batch, num_codes], and labels [batch, num_labels] or null.
inline LshQueries QueriesOf(const tensorflow::Tensor& codes, const tensorflow::Tensor* labels) {
  return {codes.flat<int32_t>().data(),
          labels == nullptr ? nullptr : labels->flat<int64_t>().data(), codes.dim_size(0),
          codes.dim_size(1), labels == nullptr ? 0 : labels->dim_size(1)};
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_LSH_TABLES_INPUT_H_
