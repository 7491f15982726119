// The variables that an op takes by their handles: found, locked, read or written in place.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_VARIABLE_LOCKS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_VARIABLE_LOCKS_H_

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace largeout {

// What `LockedVariables::AllowWrites` takes for variables on the host.
inline absl::Status CopyOnHost(const tensorflow::Tensor& from, tensorflow::Tensor* to) {
  std::memcpy(to->data(), from.data(), from.TotalBytes());
  return absl::OkStatus();
}

// A group of variables that are locked together: in order of address, as everywhere in
// TensorFlow, each once. An op with two groups locks that of the class matrix first, so that no
// two ops wait for each other. Holds the locks as long as it lives.
class LockedVariables {
 public:
  LockedVariables() = default;
  LockedVariables(const LockedVariables&) = delete;
  LockedVariables& operator=(const LockedVariables&) = delete;
  ~LockedVariables() {
    for (tensorflow::mutex* mutex : locked_) {
      shared_ ? mutex->unlock_shared() : mutex->unlock();
    }
  }

  // Adds the variable of a handle, or of the input of that name. Before the group is locked.
  absl::Status Find(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& handle) {
    variables_.emplace_back();
    return tensorflow::LookupResource(ctx, handle.scalar<tensorflow::ResourceHandle>()(),
                                      &variables_.back());
  }
  absl::Status Find(tensorflow::OpKernelContext* ctx, const char* input) {
    const tensorflow::Tensor* handle;
    TF_RETURN_IF_ERROR(ctx->input(input, &handle));
    return Find(ctx, *handle);
  }

  // For reading, or for writing too. One of them, once.
  void LockShared() { LockAll(true); }
  void Lock() { LockAll(false); }

  int size() const { return static_cast<int>(variables_.size()); }

  // The value of the i-th that was added. Once locked.
  tensorflow::Tensor* tensor(int i) const { return variables_[i]->tensor(); }

  // Makes all of them variables that may be written where they stand. Once locked.
  // copy: `absl::Status(const Tensor& from, Tensor* to)`, on the device of the variables.
  template <class Copy>
  absl::Status AllowWrites(tensorflow::OpKernelContext* ctx, const Copy& copy) const {
    for (const auto& variable : variables_) {
      TF_RETURN_IF_ERROR(AllowWrites(ctx, variable.get(), copy));
    }
    return absl::OkStatus();
  }

 private:
  void LockAll(bool shared) {
    std::vector<tensorflow::mutex*> mutexes;
    for (const auto& variable : variables_) mutexes.push_back(variable->mu());
    std::sort(mutexes.begin(), mutexes.end());
    mutexes.erase(std::unique(mutexes.begin(), mutexes.end()), mutexes.end());
    locked_.reserve(mutexes.size());
    shared_ = shared;
    for (tensorflow::mutex* mutex : mutexes) {
      shared ? mutex->lock_shared() : mutex->lock();
      locked_.push_back(mutex);
    }
  }

  // Makes sure that nobody else sees the memory of the variable.
  //
  // Where a tensor that was read before is still in use, it keeps the old memory, and the
  // variable gets a copy of its own. From then on a dense read is a copy (copy-on-read mode,
  // which EnsureSparseVariableAccess sets at once): one copy in each step, whoever makes it.
  // Elsewhere reads stay free: a step may read all of a table, as `keras.layers.Embedding`
  // does, and write a few of its rows in place, as long as the read is over by then.
  template <class Copy>
  static absl::Status AllowWrites(tensorflow::OpKernelContext* ctx, tensorflow::Var* variable,
                                  const Copy& copy) {
    if (variable->copy_on_read_mode.load()) return absl::OkStatus();
    tensorflow::Tensor* const tensor = variable->tensor();
    if (!tensor->IsInitialized() || tensor->RefCountIsOne()) return absl::OkStatus();
    tensorflow::AllocatorAttributes attributes;
    attributes.set_gpu_compatible(true);
    attributes.set_nic_compatible(true);
    tensorflow::Tensor own;
    TF_RETURN_IF_ERROR(ctx->allocate_temp(tensor->dtype(), tensor->shape(), &own, attributes));
    TF_RETURN_IF_ERROR(copy(*tensor, &own));
    *tensor = own;
    variable->copy_on_read_mode.store(true);
    return absl::OkStatus();
  }

  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::vector<tensorflow::mutex*> locked_;
  bool shared_ = false;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_VARIABLE_LOCKS_H_
