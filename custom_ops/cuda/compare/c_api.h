// Launchers and device memory as C functions, for programs that call them without C++:
// the comparison with other frameworks beside this file, which reads the declarations here.
//
// Each returns a status, 0 if all is well. Pointers are to device memory except where a name
// says host. Work is queued on the default stream; copies to the host wait for it.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_COMPARE_C_API_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_COMPARE_C_API_H_

#include <cstdint>

extern "C" {

// What went wrong, as CUDA says it.
const char* largeout_status_text(int status);

// The name of the first GPU, cut to `size` bytes with the 0 at its end. A status where there
// is no GPU or no driver.
int largeout_device_name(char* host_name, int64_t size);

// Memory filled with bytes 0xFF, NaN or -1: what a launcher does not write is seen.
int largeout_allocate(int64_t bytes, void** host_pointer);
int largeout_free(void* memory);
int largeout_copy_from_host(const void* host_values, int64_t bytes, void* to);
int largeout_copy_to_host(const void* from, int64_t bytes, void* host_values);

// Waits for all that was queued.
int largeout_wait();

// cuda/row_dots.h, without biases. rows [num_ids, dim].
int largeout_gather_rows(const float* embeddings, int64_t num_classes, int64_t dim,
                         const int64_t* ids, int64_t num_ids, float* rows);

// ids and logits [batch, per_row], features [batch, dim].
int largeout_row_dots(const float* embeddings, int64_t num_classes, int64_t dim,
                      const float* features, const int64_t* ids, int64_t batch, int64_t per_row,
                      float* logits);
int largeout_row_dots_feature_gradient(const float* embeddings, int64_t num_classes,
                                       int64_t dim, const int64_t* ids, int64_t batch,
                                       int64_t per_row, const float* d_logits,
                                       float* d_features);

// cuda/row_dots_gradient.h. own_ids and d_logits [batch, per_row], shared_ids [num_shared],
// d_shared_rows [num_shared, dim]. row_ids and d_rows have min(batch * per_row + num_shared,
// num_classes) rows.
int64_t largeout_row_gradient_scratch_bytes(int64_t batch, int64_t per_row, int64_t num_shared,
                                            int64_t num_classes, int64_t dim);
int largeout_row_gradient(const int64_t* own_ids, int64_t batch, int64_t per_row,
                          const int64_t* shared_ids, int64_t num_shared, int64_t num_classes,
                          int64_t dim, const float* features, const float* d_logits,
                          const float* d_shared_rows, void* scratch, int64_t* row_ids,
                          float* d_rows);

// cuda/row_merge.h and cuda/row_update.h: merges, then updates. values [num_ids, dim]; ids
// outside [0, num_rows) are skipped. step_size and epsilon: one float each; betas: two doubles.
int64_t largeout_row_adam_scratch_bytes(int64_t num_ids, int64_t num_rows, int64_t dim);
int largeout_row_adam(const int64_t* ids, int64_t num_ids, const float* values,
                      int64_t num_rows, int64_t dim, const float* step_size,
                      const double* betas, const float* epsilon, const float* weight_decay,
                      void* scratch, float* variable, float* momentum, float* velocity);

// cuda/candidates.h, with one label a row and candidates that the rows share. labels [batch],
// ids and offsets [num_candidates], logits and d_logits [batch, num_candidates], log_partition
// and d_log_partition [batch].
int largeout_candidate_log_partition(const int64_t* labels, const int64_t* ids, int64_t batch,
                                     int64_t num_candidates, const float* logits,
                                     const float* offsets, float* log_partition);
int largeout_candidate_gradient(const int64_t* labels, const int64_t* ids, int64_t batch,
                                int64_t num_candidates, const float* logits,
                                const float* offsets, const float* log_partition,
                                const float* d_log_partition, float* d_logits);

// label_loss_body.h. All [batch].
int largeout_label_loss(const float* true_logits, const float* true_offsets,
                        const float* log_partition, int64_t batch, float* losses,
                        float* d_true_logits, float* d_log_partition);

// cuda/class_scan.h, without biases and with one label a row. features [batch, dim]; labels,
// log_partition, true_logits, ranks, weights and label_weights [batch].
int64_t largeout_class_statistics_scratch_bytes(int64_t batch, int64_t num_classes);
int largeout_class_statistics(const float* embeddings, int64_t num_classes, int64_t dim,
                              const float* features, int64_t batch, const int64_t* labels,
                              void* scratch, float* log_partition, float* true_logits,
                              int64_t* ranks);
int64_t largeout_class_gradient_scratch_bytes(int64_t batch, int64_t num_classes, int64_t dim);
int largeout_class_gradient(const float* embeddings, int64_t num_classes, int64_t dim,
                            const float* features, int64_t batch, const int64_t* labels,
                            const float* log_partition, const float* weights,
                            const float* label_weights, void* scratch, float* d_features,
                            float* d_embeddings);

// scores and ids [batch, k].
int64_t largeout_class_top_k_scratch_bytes(int64_t batch, int64_t num_classes, int64_t k);
int largeout_class_top_k(const float* embeddings, int64_t num_classes, int64_t dim,
                         const float* features, int64_t batch, int64_t k, void* scratch,
                         float* scores, int64_t* ids);

}  // extern "C"

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_COMPARE_C_API_H_
