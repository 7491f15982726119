// The parts of an inverted file: variables, in place and under their locks, or tensors.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_INVERTED_FILE_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_INVERTED_FILE_INPUT_H_

#include <vector>

#include "custom_ops/core/inverted_file/inverted_file.h"
#include "custom_ops/kernels/variable_locks.h"

namespace largeout {

// Holds the locks as long as it lives.
class InvertedFileInput {
 public:
  // Finds the variables of the file, inputs `means` to `scales`, for reading, and checks their
  // dtypes and shapes.
  absl::Status Read(tensorflow::OpKernelContext* ctx);

  // Finds them and input `schedule`, checks the lists too, and makes them variables that may be
  // written in place. In memory of the host.
  absl::Status ReadForWriting(tensorflow::OpKernelContext* ctx);

  // Instead of that: copies inputs `means` to `schedule`, which are tensors here, to the
  // outputs, takes these, and checks them as well.
  absl::Status CopyToOutputs(tensorflow::OpKernelContext* ctx);

  // OK if the offsets are those of an inverted file. In memory of the host.
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
