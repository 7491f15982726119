#include "custom_ops/core/optimizers/dense_adam.h"

#include <cmath>
#include <random>
#include <vector>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

struct State {
  std::vector<float> w, m, v;
};

State Updated(int64_t size, const ParallelFor& parallel) {
  State state{std::vector<float>(size), std::vector<float>(size), std::vector<float>(size)};
  std::vector<float> gradient(size);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < size; ++i) {
    state.w[i] = normal(random);
    state.m[i] = normal(random);
    state.v[i] = std::fabs(normal(random));
    gradient[i] = normal(random);
  }
  UpdateAll({state.w.data(), state.m.data(), state.v.data(), gradient.data(), 0.01f, 0.1f,
             0.001f, 1e-7f},
            size, parallel);
  return state;
}

TEST(DenseAdamHasTheSameBitsAtEachSimdLevelAndInAnyOrder) {
  for (int64_t size : {0, 1, 15, 4096, 10001}) {
    State first = Updated(size, SerialFor);
    testing::ForEachSimdLevel([&] {
      for (const ParallelFor& parallel :
           {ParallelFor(SerialFor), ParallelFor(testing::BackwardsFor)}) {
        const State state = Updated(size, parallel);
        EXPECT_TRUE(state.w == first.w);
        EXPECT_TRUE(state.m == first.m);
        EXPECT_TRUE(state.v == first.v);
      }
    });
  }
}

TEST(DenseAdamRoundsEachOperation) {
  float w = 0.5f, m = 0.3f, v = 0.7f;
  const float g = 1.1f;
  // A product of floats is exact in double, so each cast rounds once.
  const float dm = static_cast<float>(double{g - m} * 0.1f), new_m = m + dm;
  const float square = static_cast<float>(double{g} * g);
  const float dv = static_cast<float>(double{square - v} * 0.001f), new_v = v + dv;
  const float top = static_cast<float>(double{new_m} * 0.01f);
  const float new_w = w - top / (std::sqrt(new_v) + 1e-7f);
  UpdateAll({&w, &m, &v, &g, 0.01f, 0.1f, 0.001f, 1e-7f}, 1, SerialFor);
  EXPECT_EQ(m, new_m);
  EXPECT_EQ(v, new_v);
  EXPECT_EQ(w, new_w);
}

}  // namespace
}  // namespace largeout
