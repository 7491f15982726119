#include <cuda_runtime.h>

#include <algorithm>

#include "custom_ops/cuda/check/peaks.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

// A thread keeps kTile x kTile sums in registers, as in a matrix product.
constexpr int kTile = 8;
constexpr int kSteps = 2048;

struct MultiplyAddLoop {
  float* out;

  LARGEOUT_DEVICE void operator()(int64_t thread) const {
    float sums[kTile][kTile] = {};
    float a[kTile], b[kTile];
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      a[i] = out[thread] + i;
      b[i] = out[thread] - i;
    }
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
#pragma unroll
        for (int j = 0; j < kTile; ++j) sums[i][j] = sums[i][j] * a[i] + b[j];
      }
    }
    float total = 0;
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
#pragma unroll
      for (int j = 0; j < kTile; ++j) total += sums[i][j];
    }
    out[thread] = total;
  }
};

// The median of the single timing in `report`, in seconds.
double SecondsOf(const Report& report) { return Median(report.timings[0].milliseconds) * 1e-3; }

std::string Version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::string FindDevice(Device* device) {
  int count = 0;
  Status status = cudaGetDeviceCount(&count);
  if (status == kOk && count == 0) status = cudaErrorNoDevice;
  cudaDeviceProp properties;
  if (status == kOk) status = cudaGetDeviceProperties(&properties, 0);
  if (status != kOk) return StatusText(status);
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  device->name = properties.name;
  device->capability =
      std::to_string(properties.major) + "." + std::to_string(properties.minor);
  device->cuda = "CUDA driver " + Version(driver) + ", runtime " + Version(runtime);
  device->memory_bytes = static_cast<double>(properties.totalGlobalMem);
  return "";
}

void MeasurePeaks(Stream stream, Device* device) {
  const int64_t bytes =
      std::min(int64_t{1} << 30, static_cast<int64_t>(device->memory_bytes / 8));
  {
    const DeviceArray<char> from(bytes), to(bytes);
    Report report;
    Run("copy", false, stream, &report).Time("", {}, [&] {
      return CopyBytes(from.data(), bytes, to.data(), stream);
    });
    device->copy_bytes_per_second = 2.0 * static_cast<double>(bytes) / SecondsOf(report);
  }
  const int64_t threads = int64_t{1} << 20;
  const DeviceArray<float> out(std::vector<float>(threads, 0.5f));
  Report report;
  Run("multiply-adds", false, stream, &report).Time("", {}, [&] {
    return ForEach(threads, MultiplyAddLoop{out.data()}, stream);
  });
  const double flops = 2.0 * kTile * kTile * kSteps * static_cast<double>(threads);
  device->flops_per_second = flops / SecondsOf(report);
}

}  // namespace check
}  // namespace cuda
}  // namespace largeout
