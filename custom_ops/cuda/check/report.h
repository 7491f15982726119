// The host part of the CUDA check: its options, its results and how they are shown.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CHECK_REPORT_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CHECK_REPORT_H_

#include <string>
#include <vector>

namespace largeout {
namespace cuda {
namespace check {

struct Options {
  bool help = false;
  bool small = false;  // small sizes and no times: for compute-sanitizer
  std::string filter;  // runs the checks with this text in their names
  std::string json;    // a file to write; none if empty
};

extern const char kUsage[];

// Returns what is wrong with the arguments, nothing if they are right.
std::string ParseOptions(int argc, const char* const* argv, Options* options);

// The card, and what it can do at most, measured in the same run.
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
  std::string failure;  // empty if it agrees
};

// What a launch reads and writes, and computes: 0 where that is not its bound.
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

// Of an even number of values, the mean of the two in the middle; 0 of none.
double Median(std::vector<double> values);

// How many comparisons failed.
int Failures(const Report& report);

// For reading: each check with its number of comparisons, failures, then times.
std::string Table(const Report& report);

// For programs: all of it.
std::string Json(const Report& report);

// Where `actual` leaves `expected` by more than tolerance * (1 + |expected|), in words;
// empty if nowhere. NaN agrees with NaN.
std::string FirstDifference(const std::vector<double>& actual,
                            const std::vector<double>& expected, double tolerance);

}  // namespace check
}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CHECK_REPORT_H_
