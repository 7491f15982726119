#include "custom_ops/kernels/inverted_file_input.h"

#include "custom_ops/kernels/checks.h"

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

absl::Status InvertedFileInput::Find(OpKernelContext* ctx, Part last) {
  for (int part = kMeans; part <= last; ++part) {
    TF_RETURN_IF_ERROR(variables_.Find(ctx, kNames[part]));
  }
  return absl::OkStatus();
}

absl::Status InvertedFileInput::Read(OpKernelContext* ctx) {
  TF_RETURN_IF_ERROR(Find(ctx, kScales));
  variables_.LockShared();
  for (int i = 0; i < variables_.size(); ++i) tensors_.push_back(variables_.tensor(i));
  return CheckShapes();
}

absl::Status InvertedFileInput::ReadForWriting(OpKernelContext* ctx) {
  TF_RETURN_IF_ERROR(Find(ctx, kSchedule));
  variables_.Lock();
  for (int i = 0; i < variables_.size(); ++i) tensors_.push_back(variables_.tensor(i));
  TF_RETURN_IF_ERROR(CheckShapes());
  TF_RETURN_IF_ERROR(CheckLists());
  return variables_.AllowWrites(ctx, CopyOnHost);
}

absl::Status InvertedFileInput::CopyToOutputs(OpKernelContext* ctx) {
  for (int part = kMeans; part <= kSchedule; ++part) {
    const tensorflow::Tensor* from;
    TF_RETURN_IF_ERROR(ctx->input(kNames[part], &from));
    tensorflow::Tensor* to;
    TF_RETURN_IF_ERROR(ctx->allocate_output(part, from->shape(), &to));
    TF_RETURN_IF_ERROR(CopyOnHost(*from, to));
    tensors_.push_back(to);
  }
  TF_RETURN_IF_ERROR(CheckShapes());
  return CheckLists();
}

absl::Status InvertedFileInput::CheckPart(Part part, DataType dtype,
                                          const TensorShape& shape) const {
  return CheckVariable(tensor(part), kNames[part], dtype, shape);
}

absl::Status InvertedFileInput::CheckShapes() const {
  if (tensor(kMeans).dims() != 2 || tensor(kMeans).dim_size(0) < 1 || dim() < 1 ||
      tensor(kIds).dims() != 1) {
    return InvalidArgument(
        "means must be [num_lists, dim], both at least 1, and ids "
        "[num_classes], got ",
        tensor(kMeans).shape().DebugString(), " and ", tensor(kIds).shape().DebugString());
  }
  const int64_t num_lists = tensor(kMeans).dim_size(0), num_classes = tensor(kIds).dim_size(0);
  TF_RETURN_IF_ERROR(CheckPart(kMeans, DT_FLOAT, {num_lists, dim()}));
  TF_RETURN_IF_ERROR(CheckPart(kMeanBias, DT_FLOAT, {num_lists}));
  TF_RETURN_IF_ERROR(CheckPart(kOffsets, DT_UINT32, {num_lists + 1}));
  TF_RETURN_IF_ERROR(CheckPart(kIds, DT_UINT32, {num_classes}));
  const int64_t num_groups = NumGroups(num_classes);
  TF_RETURN_IF_ERROR(
      CheckPart(kCodes, DT_UINT8,
                {num_groups, PackedWidth(dim()) / kCodesTogether, kGroupRows, kCodesTogether}));
  TF_RETURN_IF_ERROR(CheckPart(kScales, DT_FLOAT, {num_groups, 2, kGroupRows}));
  return tensors_.size() > kSchedule ? CheckPart(kSchedule, DT_INT64, {2}) : absl::OkStatus();
}

absl::Status InvertedFileInput::CheckLists() const {
  const int64_t num_classes = tensor(kIds).dim_size(0);
  if (HasLists(file(), num_classes)) return absl::OkStatus();
  return InvalidArgument("offsets must increase from 0 to num_classes = ", num_classes,
                         ", or all be 0 before the lists are fitted, but these do not. Fit "
                         "the inverted file again");
}

InvertedFile InvertedFileInput::file() const {
  // Unsigned, because TensorFlow has no int32 variables on GPUs.
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
