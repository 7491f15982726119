#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/emulated_gpu/cub/device/device_radix_sort.cuh"
#include "custom_ops/emulated_gpu/cub/device/device_scan.cuh"
#include "custom_ops/emulated_gpu/cuda_runtime.h"
#include "custom_ops/emulated_gpu/emulated_launch.h"

namespace largeout {
namespace {

template <class T>
struct OnDevice {
  explicit OnDevice(const std::vector<T>& values) : size(values.size()) {
    cudaMalloc(&memory, bytes());
    cudaMemcpy(memory, values.data(), bytes(), cudaMemcpyHostToDevice);
  }
  ~OnDevice() { cudaFree(memory); }
  T* data() const { return static_cast<T*>(memory); }
  size_t bytes() const { return size * sizeof(T); }
  std::vector<T> Get() const {
    std::vector<T> values(size);
    cudaMemcpy(values.data(), memory, bytes(), cudaMemcpyDeviceToHost);
    return values;
  }

  const size_t size;
  void* memory = nullptr;
};

struct AddOne {
  int* values;
  void operator()(int64_t i) const { ++values[i]; }
};

// Whether `work` ends a process by a signal or by a sanitizer's error.
template <class Work>
bool Crashes(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (freopen("/dev/null", "w", stderr) != nullptr) work();
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
}

TEST(EmulatedGpuRunsKernelsOnItsMemory) {
  const OnDevice<int> values(std::vector<int>(1000, 4));
  EXPECT_EQ(cuda::ForEach(1000, AddOne{values.data()}, nullptr), cudaSuccess);
  EXPECT_EQ(values.Get(), std::vector<int>(1000, 5));
}

TEST(EmulatedGpuRefusesHostMemoryInAKernel) {
  if (!emulated_gpu::kChecksArguments) return;
  std::vector<int> values(10, 4);
  const int on_stack = 0;
  for (const int* pointer : {const_cast<const int*>(values.data()), &on_stack}) {
    EXPECT_EQ(cuda::ForEach(1, AddOne{const_cast<int*>(pointer)}, nullptr),
              cudaErrorIllegalAddress);
    EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  EXPECT_EQ(values, std::vector<int>(10, 4));
}

TEST(EmulatedGpuProtectsItsMemoryFromTheHost) {
  const OnDevice<int> values(std::vector<int>(10, 4));
  EXPECT_TRUE(Crashes([&] { values.data()[3] = 1; }));
  EXPECT_TRUE(!Crashes([&] { values.Get(); }));
}

TEST(EmulatedGpuDetectsAccessesAfterTheEndOfAnAllocation) {
  EXPECT_TRUE(Crashes([] {
    const OnDevice<int> values(std::vector<int>(10, 4));
    cuda::ForEach(11, AddOne{values.data()}, nullptr);
  }));
  EXPECT_TRUE(Crashes([] {
    const OnDevice<int> values(std::vector<int>(64, 4));
    cuda::ForEach(1, AddOne{values.data() + 64}, nullptr);
  }));
  EXPECT_TRUE(Crashes([] {
    int* freed;
    {
      const OnDevice<int> values(std::vector<int>(64, 4));
      freed = values.data();
    }
    const largeout::emulated_gpu::Access access;
    AddOne{freed}(0);
  }));
}

TEST(EmulatedGpuRefusesCopiesInTheWrongDirection) {
  const OnDevice<int> values({1, 2, 3});
  std::vector<int> host(3);
  EXPECT_EQ(cudaMemcpy(host.data(), values.data(), 12, cudaMemcpyHostToDevice),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy(values.data(), host.data(), 12, cudaMemcpyDeviceToDevice),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy(host.data(), values.data(), 260, cudaMemcpyDeviceToHost),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemset(host.data(), 0, 12), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(EmulatedGpuRefusesLaunchesThatEveryGpuRefuses) {
  struct Nothing {
    void operator()(const cuda::HostBlock&, char*) const {}
  };
  EXPECT_EQ(cuda::ForEachBlock(5, 1024, 65536, Nothing(), nullptr), cudaSuccess);
  EXPECT_EQ(cuda::ForEachBlock(5, 1025, 0, Nothing(), nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cuda::ForEachBlock(5, 32, 65537, Nothing(), nullptr),
            cudaErrorInvalidConfiguration);
  cudaGetLastError();
}

TEST(EmulatedSortIsStableAndComparesOnlyTheGivenBits) {
  const OnDevice<uint32_t> keys({5, 4 + 8, 5 + 8, 4}), sorted({0, 0, 0, 0});
  const OnDevice<int> values({1, 2, 3, 4}), moved({0, 0, 0, 0});
  size_t bytes = 0;
  const auto sort = [&](void* storage) {
    return cub::DeviceRadixSort::SortPairs(storage, bytes, keys.data(), sorted.data(),
                                           values.data(), moved.data(), 4, 0, 3, nullptr);
  };
  EXPECT_EQ(sort(nullptr), cudaSuccess);
  const OnDevice<char> storage{std::vector<char>(bytes)};
  EXPECT_EQ(sort(storage.data()), cudaSuccess);
  EXPECT_EQ(moved.Get(), (std::vector<int>{2, 4, 1, 3}));
  EXPECT_EQ(sorted.Get(), (std::vector<uint32_t>{12, 4, 5, 13}));
  --bytes;
  EXPECT_EQ(sort(storage.data()), cudaErrorInvalidValue);
}

TEST(EmulatedScanAddsUpInPlace) {
  const OnDevice<int> values({1, 2, 3, 4});
  size_t bytes = 0;
  cub::DeviceScan::InclusiveSum(nullptr, bytes, values.data(), values.data(), 4, nullptr);
  const OnDevice<char> storage{std::vector<char>(bytes)};
  EXPECT_EQ(cub::DeviceScan::InclusiveSum(storage.data(), bytes, values.data(), values.data(),
                                          4, nullptr),
            cudaSuccess);
  EXPECT_EQ(values.Get(), (std::vector<int>{1, 3, 6, 10}));
}

}  // namespace
}  // namespace largeout
