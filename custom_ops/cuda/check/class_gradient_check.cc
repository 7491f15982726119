#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/cuda/check/class_problem.h"
#include "custom_ops/cuda/class_scan.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

// The GPU sums over the batch and over the classes in another order than the CPU.
constexpr double kTolerance = 1e-4;

std::vector<float> SomeZeros(int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = random() % 4 == 0 ? 0.0f : normal(random);
  return values;
}

struct GradientOnGpu {
  GradientOnGpu(const ScanOnGpu& in, const std::vector<float>& log_partition,
                const std::vector<float>& weights, const std::vector<float>& label_weights,
                int64_t skipped = 0)
      : in(in),
        log_partition(log_partition),
        weights(weights),
        label_weights(label_weights),
        scratch(ClassSoftmaxGradientScratchBytes(in.batch, in.num_classes, in.dim)),
        d_features(in.batch * in.dim),
        d_embeddings(in.num_classes * in.dim, skipped),
        d_bias(in.num_classes) {}

  Status Launch(Stream stream) const {
    return ClassSoftmaxGradient(in.matrix(), in.features(), in.labels(),
                                {log_partition.data(), weights.data(), label_weights.data()},
                                scratch.data(), d_features.data(), d_embeddings.data(),
                                d_bias.data(), stream);
  }

  const ScanOnGpu& in;
  const DeviceArray<float> log_partition, weights, label_weights;
  const DeviceMemory scratch;
  const DeviceArray<float> d_features, d_embeddings, d_bias;
};

void CheckProblem(Run* run, ScanProblem in) {
  const ScanProblem good = in.WithoutBadLabels();
  std::vector<float> log_partition(in.batch), true_logits(in.ids.size());
  std::vector<int64_t> ranks(in.ids.size());
  largeout::ClassStatistics(good.matrix(), in.features(), good.labels(), SerialFor,
                            log_partition.data(), true_logits.data(), ranks.data());
  std::vector<float> weights = SomeZeros(in.batch, 1);
  std::vector<float> label_weights = SomeZeros(in.batch * in.width, 2);
  if (in.batch > 4) {  // an example without weights is ignored, whatever its numbers
    weights[4] = 0;
    std::fill_n(label_weights.begin() + 4 * in.width, in.width, 0.0f);
    in.data[4 * in.dim + 1] = log_partition[4] = NAN;
  }
  std::vector<float> d_features(in.data.size()), d_embeddings(in.embeddings.size());
  std::vector<float> d_bias(in.bias.size());
  largeout::ClassSoftmaxGradient(in.matrix(), in.features(), log_partition.data(),
                                 weights.data(), good.labels(), label_weights.data(), SerialFor,
                                 d_features.data(), d_embeddings.data(), d_bias.data());
  for (const int64_t skipped : Skips(in)) {
    const ScanOnGpu on_gpu(in, skipped);
    const GradientOnGpu found(on_gpu, log_partition, weights, label_weights, skipped);
    const Status launched = found.Launch(run->stream());
    run->Expect(Text(in) + " d_features", launched, found.d_features, d_features, kTolerance);
    run->Expect(Text(in) + " d_embeddings", launched, found.d_embeddings, d_embeddings,
                kTolerance);
    run->Expect(Text(in) + " d_bias", launched, found.d_bias, d_bias, kTolerance);
  }
}

// The pass reads the matrix twice and writes its gradient. It takes 8 operations per product, 6
// of which any form of the gradient needs.
void Time(Run* run, int64_t batch, int64_t num_classes) {
  const ScanOnGpu in(batch, num_classes, 128);
  const std::vector<float> ones(batch, 1.0f), partition(batch, 20.0f);
  const GradientOnGpu found(in, partition, ones, ones);
  run->Time(in.text(), {3 * in.matrix_bytes(), 4 * in.product_flops()},
            [&] { return found.Launch(run->stream()); });
}

void CheckClassSoftmaxGradient(Run* run) {
  for (const ScanProblem& in : ScanProblems(*run)) CheckProblem(run, in);
  if (run->small()) return;
  Time(run, 4096, 1000000);
  Time(run, 256, 1000000);
  Time(run, 16, 1000000);
}

const bool registered = Register("ClassSoftmaxGradient", CheckClassSoftmaxGradient);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
