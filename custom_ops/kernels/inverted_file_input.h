// The parts of an inverted file: variables, in place and locked, or tensors.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_INVERTED_FILE_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_INVERTED_FILE_INPUT_H_

#include <vector>

#include "custom_ops/core/inverted_file/inverted_file.h"
#include "custom_ops/kernels/variable_locks.h"

namespace largeout {

// Holds the locks during its lifetime.
class InvertedFileInput {
 public:
  // Finds the variables of the file, inputs `means` to `scales`, for reading. Checks their
  // dtypes and shapes.
  absl::Status Read(tensorflow::OpKernelContext* ctx);

  // Finds them and input `schedule`, also checks the lists, and makes the variables writable in
  // place. For variables in host memory.
  absl::Status ReadForWriting(tensorflow::OpKernelContext* ctx);

  // An alternative for tensors: copies inputs `means` to `schedule` to the outputs, uses these,
  // and checks them in the same way.
  absl::Status CopyToOutputs(tensorflow::OpKernelContext* ctx);

  // OK if the offsets are valid for an inverted file. In host memory.
  absl::Status CheckLists() const;

  InvertedFile file() const;
  int64_t* schedule() const { return tensor(kSchedule).flat<int64_t>().data(); }
  int64_t dim() const { return tensor(kMeans).dim_size(1); }

 private:
  enum Part { kMeans, kMeanBias, kOffsets, kIds, kCodes, kScales, kSchedule };

  absl::Status Find(tensorflow::OpKernelContext* ctx, Part last);
  absl::Status CheckShapes() const;
  absl::Status CheckPart(Part part, tensorflow::DataType dtype,
                         const tensorflow::TensorShape& shape) const;

  tensorflow::Tensor& tensor(Part part) const { return *tensors_[part]; }

  LockedVariables variables_;
  std::vector<tensorflow::Tensor*> tensors_;  // their values, or the outputs
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_INVERTED_FILE_INPUT_H_
