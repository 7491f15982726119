#include <string>
#include <vector>

#include "custom_ops/cuda/check/kernel_tree_problem.h"
#include "custom_ops/cuda/kernel_tree.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

using Floats = std::vector<float>;
using Ids = std::vector<int64_t>;
using Example = testing::KernelTreeExample;

constexpr double kTolerance = 2e-5;

void CheckBuildOf(Run* run, const TreeSize& size) {
  TreeProblem one(size, 1);
  one.on_cpu.Build();
  const Status launched =
      BuildKernelTree(one.on_cpu.shape, one.rows(), one.sums.data(), run->stream());
  run->Expect(Text(size, "sums"), launched, one.sums, one.on_cpu.sums, kTolerance);
  run->Expect(Text(size, "projected"), launched, one.projected, one.on_cpu.projected,
              kTolerance);
}

void TimeBuild(Run* run) {
  TreeProblem one(kLargeTree, 1);
  const double pairs = 128.0 * 129 / 2 * kLargeTree.num_classes;
  run->Time(Text(kLargeTree), {4.0 * kLargeTree.num_classes * kLargeTree.dim, 2 * pairs}, [&] {
    return BuildKernelTree(one.on_cpu.shape, one.rows(), one.sums.data(), run->stream());
  });
}

void CheckBuild(Run* run) {
  for (const TreeSize& size : kTreeSizes) CheckBuildOf(run, size);
  if (!run->small()) TimeBuild(run);
}

// Rows that are not finite make the sums up to the root not finite. Other sums are correct.
void CheckUnfitRows(Run* run) {
  TreeProblem one({60, 5, 4, true}, 1);
  one.on_cpu.Build();
  one.on_cpu.embeddings[41 * 5] = NAN;
  one.embeddings.Set(one.on_cpu.embeddings);
  const TreeShape& shape = one.on_cpu.shape;
  const Status launched = BuildKernelTree(shape, one.rows(), one.sums.data(), run->stream());
  const int64_t width = TreeWidth(6);
  for (int level = 0; level < shape.num_levels; ++level) {
    const int64_t node = shape.first[level] + 41 / shape.span(level);
    for (int64_t place : {0, 1, 3, 6, 10, 15}) one.on_cpu.sums[node * width + place] = NAN;
  }
  run->Expect("a row of NaN", launched, one.sums, one.on_cpu.sums, kTolerance);
}

// Ids that repeat, and some invalid ids.
Ids TouchedIds(int64_t num_classes, int64_t num_ids) {
  Ids ids = {-1, num_classes, INT64_MIN, INT64_MAX};
  if (num_ids == 0) return {};
  for (int64_t i = 0; i < num_ids; ++i) ids.push_back(i / 2 * 37 % num_classes);
  return ids;
}

// Changes the rows of the ids by a multiple of `change`.
void CheckUpdateOf(Run* run, const TreeSize& size, int64_t num_ids, float change) {
  const std::string text = Text(size, "ids=" + std::to_string(num_ids));
  TreeProblem one(size, 1);
  Example& on_cpu = one.on_cpu;
  const TreeShape& shape = on_cpu.shape;
  on_cpu.Build();
  run->ExpectOk(text, BuildKernelTree(shape, one.rows(), one.sums.data(), run->stream()));
  const Ids ids = TouchedIds(size.num_classes, num_ids);
  Ids classes;
  for (const int64_t id : ids) {
    if (id < 0 || id >= size.num_classes) continue;
    classes.push_back(id);
    on_cpu.embeddings[id * size.dim] += change * static_cast<float>(classes.size());
  }
  one.embeddings.Set(on_cpu.embeddings);
  const int64_t cpu_changed = on_cpu.Update(classes);
  const DeviceArray<int64_t> gpu_ids(ids), num_changed(1);
  const DeviceMemory scratch(UpdateKernelTreeScratchBytes(shape));
  const Status launched =
      UpdateKernelTree(shape, one.rows(), gpu_ids.data(), gpu_ids.size(), scratch.data(),
                       one.sums.data(), num_changed.data(), run->stream());
  run->Expect(text + " changed", launched, num_changed, Ids{cpu_changed});
  run->Expect(text + " sums", launched, one.sums, on_cpu.sums, kTolerance);
  const Floats updated = one.sums.Get();
  const Status built = BuildKernelTree(shape, one.rows(), one.sums.data(), run->stream());
  run->Expect(text + " rebuilt", built, one.sums, updated);
}

void CheckUpdate(Run* run) {
  for (const TreeSize& size : kTreeSizes) {
    for (const int64_t num_ids : {0, 1, 15, 400}) CheckUpdateOf(run, size, num_ids, 0.1f);
    CheckUpdateOf(run, size, 15, 0);
  }
}

const bool registered = Register("KernelTreeBuild", CheckBuild) &&
                        Register("KernelTreeUnfitRows", CheckUnfitRows) &&
                        Register("KernelTreeUpdate", CheckUpdate);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
