// The variables that an op takes by their handles. They are found, locked, and read or written
// in place.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_VARIABLE_LOCKS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_VARIABLE_LOCKS_H_

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace largeout {

// The `copy` of LockedVariables::AllowWrites for variables on the host.
inline absl::Status CopyOnHost(const tensorflow::Tensor& from, tensorflow::Tensor* to) {
  std::memcpy(to->data(), from.data(), from.TotalBytes());
  return absl::OkStatus();
}

// A group of variables that are locked together, in the order of their addresses, as everywhere
// in TensorFlow, and each only once. An op with two groups locks the group of the class matrix
// first, so that two ops never wait for each other. Holds the locks during its lifetime.
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

  // Adds the variable of a handle, or of the input of that name. Call it before locking.
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

  // Lock for reading, or for reading and writing. Call one of them, once.
  void LockShared() { LockAll(true); }
  void Lock() { LockAll(false); }

  int size() const { return static_cast<int>(variables_.size()); }

  // The value of the i-th added variable. Call it after locking.
  tensorflow::Tensor* tensor(int i) const { return variables_[i]->tensor(); }

  // Makes all of them writable in place. Call it after locking. copy: `absl::Status(const
  // Tensor& from, Tensor* to)`, on the device of the variables.
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

  // Ensures that no one else uses the memory of the variable.
  //
  // If a tensor that was read before is still in use, it keeps the old memory, and the variable
  // gets a copy. From then on a dense read is a copy (copy-on-read mode, which
  // EnsureSparseVariableAccess sets immediately): at most one copy per step. Otherwise reads
  // need no copy: a step may read the whole table, as `keras.layers.Embedding` does, and write
  // a few of its rows in place, if the read is finished by then.
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
