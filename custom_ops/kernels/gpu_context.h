// Shared by the GPU shims (X_gpu.cc): their device type, the stream of an op, scratch and
// errors.
//
// An op queues work on its stream and returns. It does not wait for the device or copy to the
// host. So hyperparameters, ids and seeds stay in device memory, and launchers get pointers to
// them; only inputs that determine shapes are in HostMemory. The ops on a factored output layer
// are an exception. They wait, by CopyToHost, because they must refuse a step before it is
// written.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_GPU_CONTEXT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_GPU_CONTEXT_H_

#include <cstdlib>
#include <cstring>

#include "custom_ops/cuda/memory.h"
#include "custom_ops/cuda/stream.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

namespace largeout {

// The device type that GPU kernels are registered for. Without LARGEOUT_GPU=1 in the
// environment, it is a type that no device has, so TensorFlow runs the CPU kernels. The Python
// loader sets the variable to 0 if the kernels cannot run on this machine.
inline const char* GpuDeviceType() {
  const char* wanted = std::getenv("LARGEOUT_GPU");
  const bool on = wanted != nullptr && std::strcmp(wanted, "1") == 0;
  return on ? tensorflow::DEVICE_GPU : "LARGEOUT_GPU_IS_OFF";
}

inline cuda::Stream StreamOf(tensorflow::OpKernelContext* ctx) {
  return static_cast<cuda::Stream>(
      ctx->op_device_context()->stream()->platform_specific_handle().stream);
}

inline absl::Status FromCuda(cuda::Status status) {
  if (status == cuda::kOk) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("CUDA: ", cuda::StatusText(status)));
}

inline absl::Status CopyTensor(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& from,
                               tensorflow::Tensor* to) {
  return FromCuda(cuda::CopyBytes(from.data(), static_cast<int64_t>(from.TotalBytes()),
                                  to->data(), StreamOf(ctx)));
}

// Copies `count` numbers to the host, and waits for them.
template <class T>
absl::Status CopyToHost(tensorflow::OpKernelContext* ctx, const T* from, int64_t count, T* to) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  return FromCuda(cuda::CopyToHost(from, bytes, to, StreamOf(ctx)));
}

// Device memory for the duration of an op, aligned to 256 bytes. Work on the stream may still
// use it after it is destroyed: TensorFlow gives it only to later work of the same stream.
class GpuScratch {
 public:
  absl::Status Allocate(tensorflow::OpKernelContext* ctx, int64_t bytes) {
    tensorflow::TensorShape shape;
    TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape({bytes}, &shape));
    return ctx->allocate_temp(tensorflow::DT_INT8, shape, &tensor_);
  }
  void* data() { return tensor_.NumElements() == 0 ? nullptr : tensor_.data(); }

 private:
  tensorflow::Tensor tensor_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_GPU_CONTEXT_H_
