// The program of `make cuda-check`.

#include <cuda_runtime.h>

#include <cstdio>
#include <exception>
#include <fstream>

#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/check/peaks.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

constexpr int kFailed = 1, kWrongArguments = 2, kNoGpu = 3;

// Returns whether the device is still usable. After an access out of bounds it is not.
bool RunCheck(const NamedCheck& check, bool small, Stream stream, Report* report) {
  std::printf("%s ...\n", check.name.c_str());
  std::fflush(stdout);
  Run run(check.name, small, stream, report);
  try {
    check.check(&run);
  } catch (const std::exception& error) {
    report->comparisons.push_back({check.name, "", error.what()});
  }
  cudaGetLastError();  // clears the error of a failed launch, which has been recorded
  return cudaDeviceSynchronize() == cudaSuccess;
}

void RunAll(const Options& options, Report* report) {
  cudaStream_t stream = nullptr;
  bool works = cudaStreamCreate(&stream) == cudaSuccess;
  if (!options.small) MeasurePeaks(stream, &report->device);
  for (const NamedCheck& check : Checks()) {
    if (check.name.find(options.filter) == std::string::npos) continue;
    if (!works) {
      report->comparisons.push_back({check.name, "", "not run: the GPU stopped before"});
      continue;
    }
    works = RunCheck(check, options.small, stream, report);
  }
  cudaStreamDestroy(stream);
}

int Main(int argc, char** argv) {
  Options options;
  const std::string wrong = ParseOptions(argc, argv, &options);
  if (options.help || !wrong.empty()) {
    std::printf("%s%s%s", wrong.c_str(), wrong.empty() ? "" : "\n", kUsage);
    return wrong.empty() ? 0 : kWrongArguments;
  }
  Report report;
  const std::string missing = FindDevice(&report.device);
  if (!missing.empty()) {
    std::printf("No GPU to check on: %s. Nothing was run.\n", missing.c_str());
    return kNoGpu;
  }
  RunAll(options, &report);
  std::printf("\n%s", Table(report).c_str());
  if (!options.json.empty() && !(std::ofstream(options.json) << Json(report))) {
    std::printf("%s cannot be written\n", options.json.c_str());
    return kFailed;
  }
  if (report.comparisons.empty()) std::printf("No check has that name.\n");
  return Failures(report) == 0 && !report.comparisons.empty() ? 0 : kFailed;
}

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout

int main(int argc, char** argv) { return largeout::cuda::check::Main(argc, argv); }
