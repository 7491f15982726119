// Shared by the ops that hash: the attributes of the family, and its functions, a tensor that
// may come from a file.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_HASH_FAMILY_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_HASH_FAMILY_INPUT_H_

#include <algorithm>
#include <limits>
#include <string>

#include "custom_ops/core/lsh/lsh_hash.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

// Attributes kind, num_hashes, num_tables, bin_size and, if it exists, bits.
class HashFamilyAttributes {
 public:
  absl::Status Read(tensorflow::OpKernelConstruction* ctx) {
    TF_RETURN_IF_ERROR(ctx->GetAttr("kind", &kind_));
    TF_RETURN_IF_ERROR(ReadCount(ctx, "num_hashes", &num_hashes_));
    TF_RETURN_IF_ERROR(ReadCount(ctx, "num_tables", &num_tables_));
    TF_RETURN_IF_ERROR(ReadCount(ctx, "bin_size", &bin_size_));
    return ctx->HasAttr("bits") ? ReadCount(ctx, "bits", &bits_) : absl::OkStatus();
  }

  // The family for vectors of `dim` numbers, without functions.
  absl::Status Family(int64_t dim, HashFamily* family) const {
    *family = {kind_ == "simhash" ? HashKind::kSimHash
               : kind_ == "wta"   ? HashKind::kWta
                                  : HashKind::kDwta,
               dim,
               ToInt(num_hashes_),
               ToInt(num_tables_),
               ToInt(bits_),
               ToInt(bin_size_),
               nullptr};
    if (HashFamilyIsValid(*family)) return absl::OkStatus();
    return tensorflow::errors::InvalidArgument(
        "dim, num_hashes and num_tables must be at least 1, and their hash functions must have "
        "fewer than 2^31 numbers; bin_size must be a power of two in [2, ",
        kMaxBinSize, "], and bits in [1, ", kMaxHashBits, "]; received dim=", dim,
        ", num_hashes=", num_hashes_, ", num_tables=", num_tables_, ", bin_size=", bin_size_,
        ", bits=", bits_);
  }

  // The family with its functions, which must outlive it. Checks their shape.
  absl::Status Family(int64_t dim, const tensorflow::Tensor& functions,
                      HashFamily* family) const {
    TF_RETURN_IF_ERROR(Family(dim, family));
    const int64_t size = HashFunctionsSize(*family);
    if (functions.dtype() != tensorflow::DT_INT32 || functions.dims() != 1 ||
        functions.NumElements() != size) {
      return tensorflow::errors::InvalidArgument(
          "functions must be int32 [", size, "] for ", kind_, " with dim=", dim,
          ", num_hashes=", num_hashes_, ", num_tables=", num_tables_, ", bin_size=", bin_size_,
          "; received ", tensorflow::DataTypeString(functions.dtype()), " ",
          functions.shape().DebugString(),
          ". Make them by hash_functions with these arguments");
    }
    family->functions = functions.flat<int32_t>().data();
    return absl::OkStatus();
  }

  // Checks the values of the functions, which are in host memory.
  absl::Status CheckFunctions(const HashFamily& family) const {
    if (HashFunctionsAreValid(family)) return absl::OkStatus();
    return tensorflow::errors::InvalidArgument(
        "functions are not valid functions of ", kind_, " for dim=", family.dim,
        ": make them with hash_functions(\"", kind_, "\", dim=", family.dim, ", ...)");
  }

 private:
  static int ToInt(int64_t value) {
    return static_cast<int>(std::min<int64_t>(value, std::numeric_limits<int>::max()));
  }

  std::string kind_;
  int64_t num_hashes_, num_tables_, bin_size_;
  int64_t bits_ = 1;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_HASH_FAMILY_INPUT_H_
