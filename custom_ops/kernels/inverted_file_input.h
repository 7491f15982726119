// The parts of an inverted file: variables, in place and under their locks, or tensors.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_INVERTED_FILE_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_INVERTED_FILE_INPUT_H_

#include <memory>
#include <vector>

#include "custom_ops/core/inverted_file.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"

namespace largeout {

// Holds the locks as long as it lives.
class InvertedFileInput {
 public:
  // Finds the variables of the file, inputs `means` to `scales`.
  absl::Status Find(tensorflow::OpKernelContext* ctx);
  // Finds input `schedule` as well.
  absl::Status FindSchedule(tensorflow::OpKernelContext* ctx);
  // Makes them variables that may be written in place. Once locked and checked.
  absl::Status AllowWrites(tensorflow::OpKernelContext* ctx);

  // Instead of all that: copies inputs `means` to `schedule`, which are tensors here, to the
  // outputs, and takes these.
  absl::Status CopyToOutputs(tensorflow::OpKernelContext* ctx);

  void LockShared();
  void Lock();

  // OK if dtypes and shapes are those of an inverted file. Once locked.
  absl::Status CheckShapes() const;
  // The same, and offsets. In memory of the host.
  absl::Status Check() const;

  InvertedFile file() const;
  int64_t* schedule() const { return tensor(kSchedule).flat<int64_t>().data(); }
  int64_t dim() const { return tensor(kMeans).dim_size(1); }

 private:
  enum Part { kMeans, kMeanBias, kOffsets, kIds, kCodes, kScales, kSchedule };

  absl::Status FindPart(tensorflow::OpKernelContext* ctx, const char* name);
  absl::Status CheckShape(Part part, tensorflow::DataType dtype,
                          const tensorflow::TensorShape& shape) const;
  std::vector<tensorflow::mutex*> MutexesInOrder() const;

  tensorflow::Tensor& tensor(Part part) const { return *tensors_[part]; }

  std::vector<tensorflow::Tensor*> tensors_;
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::vector<std::unique_ptr<tensorflow::tf_shared_lock>> shared_locks_;
  std::vector<std::unique_ptr<tensorflow::mutex_lock>> locks_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_INVERTED_FILE_INPUT_H_
