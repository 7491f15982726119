#include "custom_ops/kernels/inverted_file_input.h"

#include <algorithm>
#include <cstring>

#include "custom_ops/kernels/write_in_place.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace largeout {
namespace {

using tensorflow::DataType;
using tensorflow::DT_FLOAT;
using tensorflow::DT_INT64;
using tensorflow::DT_UINT32;
using tensorflow::DT_UINT8;
using tensorflow::OpKernelContext;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;

constexpr const char* kNames[] = {"means", "mean_bias", "offsets", "ids",
                                  "codes", "scales",    "schedule"};

}  // namespace

absl::Status InvertedFileInput::Find(OpKernelContext* ctx) {
  for (int part = kMeans; part <= kScales; ++part) {
    TF_RETURN_IF_ERROR(FindPart(ctx, kNames[part]));
  }
  return absl::OkStatus();
}

absl::Status InvertedFileInput::FindSchedule(OpKernelContext* ctx) {
  return FindPart(ctx, kNames[kSchedule]);
}

absl::Status InvertedFileInput::FindPart(OpKernelContext* ctx, const char* name) {
  const tensorflow::Tensor* handle;
  TF_RETURN_IF_ERROR(ctx->input(name, &handle));
  variables_.emplace_back();
  TF_RETURN_IF_ERROR(tensorflow::LookupResource(
      ctx, handle->scalar<tensorflow::ResourceHandle>()(), &variables_.back()));
  tensors_.push_back(variables_.back()->tensor());
  return absl::OkStatus();
}

absl::Status InvertedFileInput::CopyToOutputs(OpKernelContext* ctx) {
  for (int part = kMeans; part <= kSchedule; ++part) {
    const tensorflow::Tensor* from;
    TF_RETURN_IF_ERROR(ctx->input(kNames[part], &from));
    tensorflow::Tensor* to;
    TF_RETURN_IF_ERROR(ctx->allocate_output(part, from->shape(), &to));
    std::memcpy(to->data(), from->data(), from->TotalBytes());
    tensors_.push_back(to);
  }
  return absl::OkStatus();
}

absl::Status InvertedFileInput::AllowWrites(OpKernelContext* ctx) {
  for (const auto& variable : variables_) {
    TF_RETURN_IF_ERROR(AllowWritesInPlace(ctx, variable.get(), [](const auto& from, auto* to) {
      std::memcpy(to->data(), from.data(), from.TotalBytes());
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

// In order of address, as everywhere in TensorFlow.
std::vector<tensorflow::mutex*> InvertedFileInput::MutexesInOrder() const {
  std::vector<tensorflow::mutex*> mutexes;
  for (const auto& variable : variables_) mutexes.push_back(variable->mu());
  std::sort(mutexes.begin(), mutexes.end());
  mutexes.erase(std::unique(mutexes.begin(), mutexes.end()), mutexes.end());
  return mutexes;
}

void InvertedFileInput::LockShared() {
  for (tensorflow::mutex* mutex : MutexesInOrder()) {
    shared_locks_.push_back(std::make_unique<tensorflow::tf_shared_lock>(*mutex));
  }
}

void InvertedFileInput::Lock() {
  for (tensorflow::mutex* mutex : MutexesInOrder()) {
    locks_.push_back(std::make_unique<tensorflow::mutex_lock>(*mutex));
  }
}

absl::Status InvertedFileInput::CheckShape(Part part, DataType dtype,
                                           const TensorShape& shape) const {
  const tensorflow::Tensor& value = tensor(part);
  if (value.IsInitialized() && value.dtype() == dtype && value.shape() == shape) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      kNames[part], " must be an initialised ", tensorflow::DataTypeString(dtype),
      " variable of shape ", shape.DebugString(), ", as means and ids have it, got ",
      tensorflow::DataTypeString(value.dtype()), " ", value.shape().DebugString());
}

absl::Status InvertedFileInput::CheckShapes() const {
  if (tensor(kMeans).dims() != 2 || tensor(kMeans).dim_size(0) < 1 || dim() < 1 ||
      tensor(kIds).dims() != 1) {
    return InvalidArgument(
        "means must be [num_lists, dim], neither of them 0, and ids "
        "[num_classes], got ",
        tensor(kMeans).shape().DebugString(), " and ", tensor(kIds).shape().DebugString());
  }
  const int64_t num_lists = tensor(kMeans).dim_size(0), num_classes = tensor(kIds).dim_size(0);
  TF_RETURN_IF_ERROR(CheckShape(kMeans, DT_FLOAT, {num_lists, dim()}));
  TF_RETURN_IF_ERROR(CheckShape(kMeanBias, DT_FLOAT, {num_lists}));
  TF_RETURN_IF_ERROR(CheckShape(kOffsets, DT_UINT32, {num_lists + 1}));
  TF_RETURN_IF_ERROR(CheckShape(kIds, DT_UINT32, {num_classes}));
  const int64_t num_groups = NumGroups(num_classes);
  TF_RETURN_IF_ERROR(CheckShape(
      kCodes, DT_UINT8,
      {num_groups, PackedWidth(dim()) / kCodesTogether, kGroupRows, kCodesTogether}));
  TF_RETURN_IF_ERROR(CheckShape(kScales, DT_FLOAT, {num_groups, 2, kGroupRows}));
  return tensors_.size() > kSchedule ? CheckShape(kSchedule, DT_INT64, {2}) : absl::OkStatus();
}

absl::Status InvertedFileInput::Check() const {
  TF_RETURN_IF_ERROR(CheckShapes());
  const int64_t num_classes = tensor(kIds).dim_size(0);
  if (HasLists(file(), num_classes)) return absl::OkStatus();
  return InvalidArgument("offsets must rise from 0 to num_classes = ", num_classes,
                         ", or all be 0 before the lists are fitted: these are no offsets of "
                         "an inverted file; fit it anew");
}

InvertedFile InvertedFileInput::file() const {
  // Unsigned, as TensorFlow has no variables of int32 on GPUs.
  const auto whole_numbers = [&](Part part) {
    return reinterpret_cast<int32_t*>(tensor(part).flat<uint32_t>().data());
  };
  return {tensor(kMeans).dim_size(0),
          tensor(kMeans).flat<float>().data(),
          tensor(kMeanBias).flat<float>().data(),
          whole_numbers(kOffsets),
          whole_numbers(kIds),
          {tensor(kCodes).flat<uint8_t>().data(), tensor(kScales).flat<float>().data(),
           tensor(kIds).dim_size(0), PackedWidth(dim())}};
}

}  // namespace largeout
