// The host part of the CUDA check: options, results, and their output.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CHECK_REPORT_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CHECK_REPORT_H_

#include <string>
#include <vector>

namespace largeout {
namespace cuda {
namespace check {

struct Options {
  bool help = false;
  bool small = false;  // small sizes and no timings, for compute-sanitizer
  std::string filter;  // runs only the checks whose names contain this text
  std::string json;    // the file to write; empty for none
};

extern const char kUsage[];

// Returns an error message, or an empty string if the arguments are valid.
std::string ParseOptions(int argc, const char* const* argv, Options* options);

// The GPU and its peaks, measured in the same run.
struct Device {
  std::string name;
  std::string capability;  // "9.0"
  std::string cuda;        // versions of driver and runtime
  double memory_bytes = 0;
  double copy_bytes_per_second = 0;  // read and written
  double flops_per_second = 0;       // float32 multiply-adds, two operations each
};

// One comparison of a launcher with the CPU.
struct Comparison {
  std::string check;
  std::string what;
  std::string failure;  // empty if the results agree
};

// The bytes and operations of a launch. 0 if they do not bound its time.
struct Work {
  double bytes = 0;
  double flops = 0;
};

struct Timing {
  std::string check;
  std::string what;
  std::vector<double> milliseconds;  // of each launch
  Work work;
};

struct Report {
  Device device;
  std::vector<Comparison> comparisons;
  std::vector<Timing> timings;
};

// The median; the mean of the two middle values for an even number; 0 for no values.
double Median(std::vector<double> values);

// The number of failed comparisons.
int Failures(const Report& report);

// A table to read: each check with its numbers of comparisons and failures, then the timings.
std::string Table(const Report& report);

// The whole report, for programs.
std::string Json(const Report& report);

// Describes the first element where |actual - expected| > tolerance * (1 + |expected|). Empty
// if there is none. NaN agrees with NaN.
std::string FirstDifference(const std::vector<double>& actual,
                            const std::vector<double>& expected, double tolerance);

}  // namespace check
}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CHECK_REPORT_H_
