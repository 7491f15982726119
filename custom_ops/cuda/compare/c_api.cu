#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "custom_ops/cuda/candidates.h"
#include "custom_ops/cuda/class_scan.h"
#include "custom_ops/cuda/compare/c_api.h"
#include "custom_ops/cuda/compare/label_loss_body.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/row_dots.h"
#include "custom_ops/cuda/row_dots_gradient.h"
#include "custom_ops/cuda/row_merge.h"
#include "custom_ops/cuda/row_update.h"

namespace {

using largeout::Candidates;
using largeout::ClassMatrix;
using largeout::Offsets;
using largeout::OwnClasses;
using largeout::SharedClasses;

constexpr largeout::cuda::Stream kStream = nullptr;  // the default one

Candidates SharedCandidates(const int64_t* labels, const int64_t* ids, int64_t batch,
                            int64_t num_candidates) {
  return {labels, ids, batch, 1, num_candidates, true};
}

}  // namespace

const char* largeout_status_text(int status) { return largeout::cuda::StatusText(status); }

int largeout_device_name(char* host_name, int64_t size) {
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count == 0) status = cudaErrorNoDevice;
  cudaDeviceProp properties;
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, 0);
  if (status != cudaSuccess || size <= 0) return status;
  const size_t length = std::min<size_t>(size - 1, std::strlen(properties.name));
  std::memcpy(host_name, properties.name, length);
  host_name[length] = '\0';
  return cudaSuccess;
}

int largeout_allocate(int64_t bytes, void** host_pointer) {
  const size_t size = std::max<int64_t>(bytes, 1);
  const cudaError_t status = cudaMalloc(host_pointer, size);
  if (status == cudaSuccess) return cudaMemset(*host_pointer, 0xFF, size);
  cudaGetLastError();  // told by the status: the next launch shall not tell it again
  return status;
}

int largeout_free(void* memory) { return cudaFree(memory); }

int largeout_copy_from_host(const void* host_values, int64_t bytes, void* to) {
  return cudaMemcpy(to, host_values, bytes, cudaMemcpyHostToDevice);
}

int largeout_copy_to_host(const void* from, int64_t bytes, void* host_values) {
  return cudaMemcpy(host_values, from, bytes, cudaMemcpyDeviceToHost);
}

int largeout_wait() { return cudaDeviceSynchronize(); }

int largeout_gather_rows(const float* embeddings, int64_t num_classes, int64_t dim,
                         const int64_t* ids, int64_t num_ids, float* rows) {
  const ClassMatrix matrix{embeddings, nullptr, num_classes, dim};
  return largeout::cuda::GatherRows(matrix, SharedClasses{ids, num_ids}, rows, nullptr,
                                    kStream);
}

int largeout_row_dots(const float* embeddings, int64_t num_classes, int64_t dim,
                      const float* features, const int64_t* ids, int64_t batch, int64_t per_row,
                      float* logits) {
  const ClassMatrix matrix{embeddings, nullptr, num_classes, dim};
  return largeout::cuda::RowDots(matrix, features, OwnClasses{ids, batch, per_row}, logits,
                                 kStream);
}

int largeout_row_dots_feature_gradient(const float* embeddings, int64_t num_classes,
                                       int64_t dim, const int64_t* ids, int64_t batch,
                                       int64_t per_row, const float* d_logits,
                                       float* d_features) {
  const ClassMatrix matrix{embeddings, nullptr, num_classes, dim};
  const OwnClasses own{ids, batch, per_row};
  return largeout::cuda::RowDotsFeatureGradient(matrix, own, d_logits, d_features, kStream);
}

int64_t largeout_row_gradient_scratch_bytes(int64_t batch, int64_t per_row, int64_t num_shared,
                                            int64_t num_classes, int64_t dim) {
  return largeout::cuda::RowGradientScratchBytes(OwnClasses{nullptr, batch, per_row},
                                                 SharedClasses{nullptr, num_shared},
                                                 num_classes, dim);
}

int largeout_row_gradient(const int64_t* own_ids, int64_t batch, int64_t per_row,
                          const int64_t* shared_ids, int64_t num_shared, int64_t num_classes,
                          int64_t dim, const float* features, const float* d_logits,
                          const float* d_shared_rows, void* scratch, int64_t* row_ids,
                          float* d_rows) {
  return largeout::cuda::RowDotsRowGradient(OwnClasses{own_ids, batch, per_row},
                                            SharedClasses{shared_ids, num_shared}, num_classes,
                                            dim, {features, d_logits, d_shared_rows, nullptr},
                                            scratch, {row_ids, d_rows, nullptr}, kStream);
}

int64_t largeout_row_adam_scratch_bytes(int64_t num_ids, int64_t num_rows, int64_t dim) {
  return largeout::cuda::MergeRowsScratchBytes(num_ids, num_rows, dim);
}

int largeout_row_adam(const int64_t* ids, int64_t num_ids, const float* values,
                      int64_t num_rows, int64_t dim, const float* step_size,
                      const double* betas, const float* epsilon, const float* weight_decay,
                      void* scratch, float* variable, float* momentum, float* velocity) {
  largeout::cuda::MergedRows merged{};
  const int status =
      largeout::cuda::MergeRows(ids, num_ids, num_rows, dim, scratch, &merged, kStream);
  if (status != cudaSuccess) return status;
  largeout::cuda::AdamStep step{};
  step.variable = variable;
  step.momentum = momentum;
  step.velocity = velocity;
  step.step_size = step_size;
  step.beta_1 = betas;
  step.beta_2 = betas + 1;
  step.epsilon = epsilon;
  step.weight_decay = weight_decay;
  return largeout::cuda::UpdateRows(merged, values, dim, step, kStream);
}

int largeout_candidate_log_partition(const int64_t* labels, const int64_t* ids, int64_t batch,
                                     int64_t num_candidates, const float* logits,
                                     const float* offsets, float* log_partition) {
  return largeout::cuda::CandidateLogPartition(
      SharedCandidates(labels, ids, batch, num_candidates), logits, Offsets{offsets, false},
      log_partition, kStream);
}

int largeout_candidate_gradient(const int64_t* labels, const int64_t* ids, int64_t batch,
                                int64_t num_candidates, const float* logits,
                                const float* offsets, const float* log_partition,
                                const float* d_log_partition, float* d_logits) {
  return largeout::cuda::CandidateLogPartitionGradient(
      SharedCandidates(labels, ids, batch, num_candidates), logits, Offsets{offsets, false},
      log_partition, d_log_partition, nullptr, d_logits, nullptr, kStream);
}

int largeout_label_loss(const float* true_logits, const float* true_offsets,
                        const float* log_partition, int64_t batch, float* losses,
                        float* d_true_logits, float* d_log_partition) {
  const largeout::cuda::LabelLossBody body{true_logits, true_offsets,  log_partition,  batch,
                                           losses,      d_true_logits, d_log_partition};
  return largeout::cuda::ForEach(batch, body, kStream);
}

int64_t largeout_class_statistics_scratch_bytes(int64_t batch, int64_t num_classes) {
  return largeout::cuda::ClassStatisticsScratchBytes(batch, num_classes, 1);
}

int largeout_class_statistics(const float* embeddings, int64_t num_classes, int64_t dim,
                              const float* features, int64_t batch, const int64_t* labels,
                              void* scratch, float* log_partition, float* true_logits,
                              int64_t* ranks) {
  return largeout::cuda::ClassStatistics({embeddings, nullptr, num_classes, dim},
                                         {features, batch}, {labels, 1}, scratch, log_partition,
                                         true_logits, ranks, kStream);
}

int64_t largeout_class_gradient_scratch_bytes(int64_t batch, int64_t num_classes, int64_t dim) {
  return largeout::cuda::ClassSoftmaxGradientScratchBytes(batch, num_classes, dim);
}

int largeout_class_gradient(const float* embeddings, int64_t num_classes, int64_t dim,
                            const float* features, int64_t batch, const int64_t* labels,
                            const float* log_partition, const float* weights,
                            const float* label_weights, void* scratch, float* d_features,
                            float* d_embeddings) {
  return largeout::cuda::ClassSoftmaxGradient({embeddings, nullptr, num_classes, dim},
                                              {features, batch}, {labels, 1},
                                              {log_partition, weights, label_weights}, scratch,
                                              d_features, d_embeddings, nullptr, kStream);
}

int64_t largeout_class_top_k_scratch_bytes(int64_t batch, int64_t num_classes, int64_t k) {
  return largeout::cuda::ClassTopKScratchBytes(batch, num_classes, k);
}

int largeout_class_top_k(const float* embeddings, int64_t num_classes, int64_t dim,
                         const float* features, int64_t batch, int64_t k, void* scratch,
                         float* scores, int64_t* ids) {
  return largeout::cuda::ClassTopK({embeddings, nullptr, num_classes, dim}, {features, batch},
                                   k, scratch, scores, ids, kStream);
}
