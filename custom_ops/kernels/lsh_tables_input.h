// The hash tables of an op, which takes them by their variables' handles, and queries of them.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_LSH_TABLES_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_LSH_TABLES_INPUT_H_

#include <limits>

#include "custom_ops/core/lsh/lsh_query.h"
#include "custom_ops/core/lsh/lsh_tables.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/variable_locks.h"

namespace largeout {

// Tables are uint32 variables, because TensorFlow keeps int32 variables off the GPU. All their
// numbers are below 2^31, so core reads them as int32.
inline int32_t* TableNumbers(tensorflow::Tensor* table) {
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

// Holds the locks during its lifetime.
class LshTablesInput {
 public:
  // Finds the variables of inputs `offsets` and `ids`, for reading, and checks their shapes.
  absl::Status Read(tensorflow::OpKernelContext* ctx) {
    TF_RETURN_IF_ERROR(Find(ctx));
    variables_.LockShared();
    return CheckTableShapes(*offsets(), *ids());
  }

  // The same for writing.
  absl::Status ReadForWriting(tensorflow::OpKernelContext* ctx) {
    TF_RETURN_IF_ERROR(Find(ctx));
    variables_.Lock();
    return CheckTableShapes(*offsets(), *ids());
  }

  tensorflow::Tensor* offsets() const { return variables_.tensor(0); }
  tensorflow::Tensor* ids() const { return variables_.tensor(1); }

  LshTables tables() const {
    return {TableNumbers(offsets()), TableNumbers(ids()), ids()->dim_size(0),
            offsets()->dim_size(1) - 1, ids()->dim_size(1)};
  }

 private:
  absl::Status Find(tensorflow::OpKernelContext* ctx) {
    TF_RETURN_IF_ERROR(variables_.Find(ctx, "offsets"));
    return variables_.Find(ctx, "ids");
  }

  LockedVariables variables_;
};

// codes must be [batch, n * num_tables].
inline absl::Status CheckCodesShape(const tensorflow::Tensor& codes, const LshTables& tables) {
  if (codes.dims() == 2 && codes.dim_size(1) % tables.num_tables == 0) return absl::OkStatus();
  return WrongShape(codes, "codes", "[batch, n * num_tables] with ", tables.num_tables,
                    " tables");
}

// Checks the shapes of a query: codes as above, labels [batch, num_labels].
inline absl::Status CheckQueryShapes(const tensorflow::Tensor& codes,
                                     const tensorflow::Tensor& labels,
                                     const LshTables& tables) {
  TF_RETURN_IF_ERROR(CheckCodesShape(codes, tables));
  TF_RETURN_IF_ERROR(CheckBatchMatrix(labels, "labels", codes.dim_size(0), "codes"));
  if (codes.dim_size(1) <= kMostCodes) return absl::OkStatus();
  return tensorflow::errors::InvalidArgument("an example may have at most ", kMostCodes,
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
