#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/launch.cuh"

namespace largeout {
namespace cuda {
namespace check {
namespace {

constexpr int kWarmUps = 3;
constexpr int kLaunches = 20;

// Ends the running check if an operation other than the compared launch fails.
void Require(Status status, const std::string& what) {
  if (status != kOk) throw std::runtime_error(what + ": " + StatusText(status));
}

std::vector<NamedCheck>& AllChecks() {
  static std::vector<NamedCheck> checks;
  return checks;
}

constexpr int64_t kReaders = 1 << 20;
constexpr int kReads = 64;   // 256 MiB in total, more than any cache
constexpr int kRepeats = 3;  // at least a quarter of a millisecond

// Keeps the GPU busy while the host queues a launch, so the timing excludes the host. It also
// evicts the inputs of the launch from the caches.
struct ReadBody {
  const float* memory;
  float* sink;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    float sum = 0;
    for (int k = 0; k < kRepeats * kReads; ++k) sum += memory[k % kReads * kReaders + i];
    if (sum == 1.0f) *sink = sum;  // never true, but the compiler does not know that
  }
};

}  // namespace

bool Register(const char* name, void (*check)(Run* run)) {
  AllChecks().push_back({name, check});
  return true;
}

std::vector<NamedCheck> Checks() {
  std::vector<NamedCheck> checks = AllChecks();
  std::sort(checks.begin(), checks.end(),
            [](const NamedCheck& a, const NamedCheck& b) { return a.name < b.name; });
  return checks;
}

std::string Sizes(const std::vector<std::pair<const char*, int64_t>>& sizes) {
  std::string text;
  for (const auto& [name, size] : sizes) {
    text += (text.empty() ? "" : " ") + std::string(name) + "=" + std::to_string(size);
  }
  return text;
}

DeviceMemory::DeviceMemory(int64_t bytes) {
  const size_t size = std::max<int64_t>(bytes, 1);
  Require(cudaMalloc(&data_, size), "cudaMalloc");
  Require(cudaMemset(data_, 0xAB, size), "cudaMemset");
  Require(cudaDeviceSynchronize(), "cudaMemset");
}

// cudaFree also returns the error of an earlier failed launch, so its result is ignored.
DeviceMemory::~DeviceMemory() { cudaFree(data_); }

void DeviceMemory::CopyFrom(const void* host, int64_t bytes, int64_t offset) {
  char* const to = static_cast<char*>(data_) + offset;
  Require(cudaMemcpy(to, host, bytes, cudaMemcpyHostToDevice), "copy to the GPU");
}

void DeviceMemory::CopyTo(void* host, int64_t bytes, int64_t offset) const {
  const char* const from = static_cast<const char*>(data_) + offset;
  Require(cudaMemcpy(host, from, bytes, cudaMemcpyDeviceToHost), "copy from the GPU");
}

std::string Run::Finish(Status launched) const {
  if (launched != kOk) return std::string("the launch failed: ") + StatusText(launched);
  const Status status = cudaStreamSynchronize(stream_);
  return status == kOk ? "" : std::string("the kernel failed: ") + StatusText(status);
}

void Run::ExpectOk(const std::string& what, Status launched) { Record(what, Finish(launched)); }

void Run::Record(const std::string& what, const std::string& failure) {
  report_->comparisons.push_back({check_, what, failure});
}

void Run::Time(const std::string& what, Work work, const std::function<Status()>& launch) {
  cudaEvent_t start, stop;
  Require(cudaEventCreate(&start), "cudaEventCreate");
  Require(cudaEventCreate(&stop), "cudaEventCreate");
  Timing timing{check_, what, {}, work};
  const DeviceArray<float> memory(kReaders * kReads), sink(1);
  for (int i = -kWarmUps; i < kLaunches; ++i) {
    Require(ForEach(kReaders, ReadBody{memory.data(), sink.data()}, stream_), "reading");
    Require(cudaEventRecord(start, stream_), "cudaEventRecord");
    Require(launch(), what);
    Require(cudaEventRecord(stop, stream_), "cudaEventRecord");
    Require(cudaEventSynchronize(stop), what);
    float milliseconds = 0;
    Require(cudaEventElapsedTime(&milliseconds, start, stop), "cudaEventElapsedTime");
    if (i >= 0) timing.milliseconds.push_back(milliseconds);
  }
  report_->timings.push_back(timing);
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
}

}  // namespace check
}  // namespace cuda
}  // namespace largeout
