#include "custom_ops/cuda/check/report.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace largeout {
namespace cuda {
namespace check {
namespace {

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + "\"";
}

// JSON has no NaN or infinity.
std::string Number(double value) {
  return std::isfinite(value) ? Format("%.9g", value) : "null";
}

double PerSecond(double amount, double milliseconds) {
  return milliseconds > 0 ? amount / milliseconds * 1e3 : 0;
}

double Share(double rate, double peak) { return peak > 0 ? rate / peak : 0; }

std::string Join(const std::vector<std::string>& parts) {
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "\n  " : ",\n  ") + part;
  return joined.empty() ? "[]" : "[" + joined + "\n ]";
}

std::string JsonOf(const Timing& timing, const Device& device) {
  const double median = Median(timing.milliseconds);
  const double bytes = PerSecond(timing.work.bytes, median);
  const double flops = PerSecond(timing.work.flops, median);
  return "{\"check\": " + Quoted(timing.check) + ", \"what\": " + Quoted(timing.what) +
         ", \"ms\": " + Number(median) +
         ", \"launches\": " + std::to_string(timing.milliseconds.size()) +
         ", \"bytes\": " + Number(timing.work.bytes) +
         ", \"flops\": " + Number(timing.work.flops) +
         ", \"bytes_per_second\": " + Number(bytes) +
         ", \"flops_per_second\": " + Number(flops) +
         ", \"share_of_copy\": " + Number(Share(bytes, device.copy_bytes_per_second)) +
         ", \"share_of_flops\": " + Number(Share(flops, device.flops_per_second)) + "}";
}

std::string TimingLine(const Timing& timing, const Device& device) {
  const double median = Median(timing.milliseconds);
  const double bytes = PerSecond(timing.work.bytes, median);
  const double flops = PerSecond(timing.work.flops, median);
  return Format("%-26s %-34s %10.4f %9.1f %6.0f%% %9.2f %6.0f%%\n", timing.check.c_str(),
                timing.what.c_str(), median, bytes / 1e9,
                100 * Share(bytes, device.copy_bytes_per_second), flops / 1e12,
                100 * Share(flops, device.flops_per_second));
}

// Comparisons are in the order of the checks. One line per check.
std::string ComparisonLines(const std::vector<Comparison>& comparisons) {
  std::string lines;
  for (size_t i = 0; i < comparisons.size();) {
    const std::string& check = comparisons[i].check;
    int total = 0, failed = 0;
    for (; i < comparisons.size() && comparisons[i].check == check; ++i) {
      ++total;
      if (comparisons[i].failure.empty()) continue;
      ++failed;
      lines +=
          "FAILED " + check + " " + comparisons[i].what + ": " + comparisons[i].failure + "\n";
    }
    lines += Format("%-26s %6d comparisons, %d failed\n", check.c_str(), total, failed);
  }
  return lines;
}

}  // namespace

const char kUsage[] =
    "cuda_check [--small] [--filter TEXT] [--json FILE]\n"
    "Runs the CUDA code of tf_largeout against its CPU code, and measures it.\n"
    "  --small        small sizes and no times, for compute-sanitizer\n"
    "  --filter TEXT  only the checks with TEXT in their names\n"
    "  --json FILE    writes all results to FILE\n";

std::string ParseOptions(int argc, const char* const* argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    std::string* const value = argument == "--filter" ? &options->filter
                               : argument == "--json" ? &options->json
                                                      : nullptr;
    if (value != nullptr) {
      if (i + 1 == argc) return argument + " needs a value";
      *value = argv[++i];
    } else if (argument == "--small") {
      options->small = true;
    } else if (argument == "--help") {
      options->help = true;
    } else {
      return "unknown argument " + argument;
    }
  }
  return "";
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

int Failures(const Report& report) {
  int failures = 0;
  for (const Comparison& one : report.comparisons) failures += !one.failure.empty();
  return failures;
}

std::string Table(const Report& report) {
  const Device& device = report.device;
  std::string table = ComparisonLines(report.comparisons);
  table += Format("\n%s, compute capability %s, %.0f GB, %s\n", device.name.c_str(),
                  device.capability.c_str(), device.memory_bytes / 1e9, device.cuda.c_str());
  if (report.timings.empty()) return table;
  table += Format("copy %.1f GB/s, multiply-adds %.2f TFLOP/s\n\n",
                  device.copy_bytes_per_second / 1e9, device.flops_per_second / 1e12);
  table += Format("%-26s %-34s %10s %9s %7s %9s %7s\n", "check", "sizes", "ms", "GB/s",
                  "of copy", "TFLOP/s", "of peak");
  for (const Timing& timing : report.timings) table += TimingLine(timing, device);
  return table;
}

std::string Json(const Report& report) {
  const Device& device = report.device;
  std::vector<std::string> comparisons, timings;
  for (const Comparison& one : report.comparisons) {
    comparisons.push_back("{\"check\": " + Quoted(one.check) + ", \"what\": " +
                          Quoted(one.what) + ", \"failure\": " + Quoted(one.failure) + "}");
  }
  for (const Timing& one : report.timings) timings.push_back(JsonOf(one, device));
  return "{\"device\": " + Quoted(device.name) +
         ",\n \"capability\": " + Quoted(device.capability) +
         ",\n \"cuda\": " + Quoted(device.cuda) +
         ",\n \"memory_bytes\": " + Number(device.memory_bytes) +
         ",\n \"copy_bytes_per_second\": " + Number(device.copy_bytes_per_second) +
         ",\n \"flops_per_second\": " + Number(device.flops_per_second) +
         ",\n \"failures\": " + std::to_string(Failures(report)) +
         ",\n \"comparisons\": " + Join(comparisons) + ",\n \"timings\": " + Join(timings) +
         "}\n";
}

std::string FirstDifference(const std::vector<double>& actual,
                            const std::vector<double>& expected, double tolerance) {
  if (actual.size() != expected.size()) {
    return Format("%zu values, expected %zu", actual.size(), expected.size());
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], e = expected[i];
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    if (std::isfinite(e) && std::abs(a - e) <= tolerance * (1 + std::abs(e))) continue;
    return Format("[%zu] is %.9g, expected %.9g", i, a, e);
  }
  return "";
}

}  // namespace check
}  // namespace cuda
}  // namespace largeout
