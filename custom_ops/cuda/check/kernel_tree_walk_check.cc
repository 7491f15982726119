#include <cmath>
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
constexpr int64_t kSeed[] = {5, -6};

struct Draw {
  int64_t batch, num_sampled;
  bool shared;
  int64_t labels_width;
};

constexpr Draw kDraws[] = {{1, 1, false, 0}, {5, 300, false, 2}, {11, 20, false, 1},
                           {7, 3, true, 1},  {7, 1, true, 0},    {3, 1000, true, 3}};

// The results of the CPU and of the GPU.
struct Drawn {
  Drawn(Run* run, TreeProblem* one, const Draw& draw, const Ids& label_ids)
      : walk{draw.batch, draw.num_sampled, draw.shared, draw.labels_width},
        draws(MakeTreeDraws(draw.batch, draw.num_sampled, draw.shared, Seed())),
        ids(draws.size()),
        labels(label_ids),
        seed(Ids{kSeed[0], kSeed[1]}),
        log_q(draws.size()),
        label_log_q(labels.size()),
        scratch(SampleKernelTreeScratchBytes(one->tree(), walk)) {
    launched = Launch(run, one);
  }

  Status Launch(Run* run, TreeProblem* one) const {
    return SampleKernelTree(one->tree(), one->features.data(), labels.data(), walk, seed.data(),
                            scratch.data(), {ids.data(), log_q.data(), label_log_q.data()},
                            run->stream());
  }

  static PhiloxSeed Seed() {
    return {static_cast<uint64_t>(kSeed[0]), static_cast<uint64_t>(kSeed[1])};
  }

  const TreeWalk walk;
  const TreeDraws draws;
  const DeviceArray<int64_t> ids, labels, seed;
  const DeviceArray<float> log_q, label_log_q;
  const DeviceMemory scratch;
  Status launched;
};

Ids RandomLabels(Example* example, int64_t size) {
  Ids labels(size);
  for (int64_t& label : labels) {
    label = static_cast<int64_t>(example->random() % (example->num_classes + 1)) - 1;
  }
  return labels;
}

// If a draw falls between two classes whose masses are rounded differently, the two sides may
// draw different classes. This is rare, and each side's log q is correct for its class.
void CheckSampleOf(Run* run, const TreeSize& size, const Draw& draw) {
  TreeProblem one(size, draw.batch);
  one.CopySums();
  const Ids labels = RandomLabels(&one.on_cpu, draw.batch * draw.labels_width);
  const Drawn drawn(run, &one, draw, labels);
  const std::string text = Text(
      size,
      Sizes({{"batch", draw.batch}, {"sampled", draw.num_sampled}, {"shared", draw.shared}}));
  run->ExpectOk(text, drawn.launched);
  const Example::Drawn expected =
      one.on_cpu.Sample(draw.num_sampled, draw.shared, labels, Drawn::Seed());
  const Ids ids = drawn.ids.Get();
  int64_t others = 0, outside = 0;
  Floats log_q;
  std::vector<std::vector<double>> q(draw.batch);
  for (int64_t i = 0; i < drawn.draws.size(); ++i) {
    others += ids[i] != expected.ids[i];
    const bool is_class = 0 <= ids[i] && ids[i] < size.num_classes;
    outside += !is_class;
    std::vector<double>& of_query = q[drawn.draws.row(i)];
    if (of_query.empty()) of_query = one.on_cpu.Probabilities(drawn.draws.row(i));
    log_q.push_back(is_class ? static_cast<float>(std::log(of_query[ids[i]])) : NAN);
  }
  const int64_t allowed = 1 + drawn.draws.size() / 1000;
  run->ExpectNear(text + " no classes", Ids{outside}, Ids{0});
  run->ExpectNear(text + " other draws", Ids{others > allowed ? others : 0}, Ids{0});
  run->Expect(text + " log q", drawn.launched, drawn.log_q, log_q, kTolerance);
  run->Expect(text + " label log q", drawn.launched, drawn.label_log_q, expected.label_log_q,
              kTolerance);
}

// Queries 1 to 3 have masses that are not finite, and some labels are invalid.
void CheckUnfitQueries(Run* run) {
  const Draw draw = {5, 20, false, 4};
  TreeProblem one({61, 6, 4, true}, draw.batch);
  one.CopySums();
  const Ids labels = {0, -1, 61, 7, 0, -1, 61, 7, 0, -1, 61, 7, 0, -1, 61, 7, -2, 60, -1, 0};
  Example::Drawn expected = one.on_cpu.Sample(
      draw.num_sampled, false,
      {0, -1, -1, 7, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 60, -1, 0},
      Drawn::Seed());
  for (int64_t query = 1; query <= 3; ++query) {
    one.on_cpu.features[query * 6 + query] = Floats{NAN, INFINITY, 1e30f}[query - 1];
    for (int64_t i = query * 20; i < (query + 1) * 20; ++i) {
      expected.ids[i] = 0;
      expected.log_q[i] = NAN;
    }
    for (const int64_t i : {0, 2, 3}) expected.label_log_q[query * 4 + i] = NAN;
  }
  expected.label_log_q[2] = expected.label_log_q[16] = NAN;
  one.features.Set(one.on_cpu.features);
  const Drawn drawn(run, &one, draw, labels);
  run->Expect("unfit queries ids", drawn.launched, drawn.ids, expected.ids);
  run->Expect("unfit queries log q", drawn.launched, drawn.log_q, expected.log_q, kTolerance);
  run->Expect("unfit queries labels", drawn.launched, drawn.label_log_q, expected.label_log_q,
              kTolerance);
}

// Sums below 0 count as 0. Sums that are not finite give no draws.
void CheckDamagedSums(Run* run) {
  const Draw draw = {3, 50, false, 1};
  for (const float factor : {-1.0f, NAN}) {
    TreeProblem one({61, 6, 4, true}, draw.batch);
    one.CopySums();
    for (float& sum : one.on_cpu.sums) sum *= factor;
    one.sums.Set(one.on_cpu.sums);
    const Ids labels = {0, 60, 33};
    const Drawn drawn(run, &one, draw, labels);
    Example::Drawn expected = one.on_cpu.Sample(draw.num_sampled, false, labels, Drawn::Seed());
    if (factor != factor) {
      expected.ids.assign(expected.ids.size(), 0);
      expected.log_q.assign(expected.log_q.size(), NAN);
      expected.label_log_q.assign(labels.size(), NAN);
    }
    run->Expect("damaged sums ids", drawn.launched, drawn.ids, expected.ids);
    run->Expect("damaged sums log q", drawn.launched, drawn.log_q, expected.log_q, kTolerance);
    run->Expect("damaged sums labels", drawn.launched, drawn.label_log_q, expected.label_log_q,
                kTolerance);
  }
}

void CheckNoQueries(Run* run) {
  TreeProblem one({61, 6, 4, true}, 0);
  one.CopySums();
  run->ExpectOk("no queries", Drawn(run, &one, {0, 20, false, 1}, {}).launched);
}

void CheckSample(Run* run) {
  for (const TreeSize& size : kTreeSizes) {
    for (const Draw& draw : kDraws) CheckSampleOf(run, size, draw);
  }
  CheckNoQueries(run);
  CheckUnfitQueries(run);
  CheckDamagedSums(run);
  if (run->small()) return;
  TreeProblem one(kLargeTree, 256);
  one.sums.Set(Floats(one.sums.size(), 1.0f));
  const Drawn drawn(run, &one, {256, 64, false, 1}, Ids(256, 7));
  run->Time(Text(kLargeTree, "batch=256 sampled=64"), {},
            [&] { return drawn.Launch(run, &one); });
}

const bool registered = Register("KernelTreeSample", CheckSample);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
