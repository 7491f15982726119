#include "custom_ops/cuda/check/report.h"

#include <cmath>
#include <limits>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

const double kNan = std::nan("");
const double kInfinity = std::numeric_limits<double>::infinity();

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Report ExampleReport() {
  Report report;
  report.device = {"Card \"X\"", "9.0", "driver 13.0, runtime 13.0", 8e10, 2e12, 5e13};
  report.comparisons = {{"RowMerge", "n=0", ""},
                        {"RowMerge", "n=1", "[0] is 1, expected 2"},
                        {"Adam", "n=3", ""}};
  report.timings = {{"Adam", "n=1000 dim=128", {4.0, 1.0, 2.0}, {2e9, 0}}};
  return report;
}

TEST(CheckOptionsAreRead) {
  const char* arguments[] = {"cuda_check", "--small", "--filter", "Adam", "--json", "a.json"};
  Options options;
  EXPECT_EQ(ParseOptions(6, arguments, &options), "");
  EXPECT_TRUE(options.small);
  EXPECT_EQ(options.filter, "Adam");
  EXPECT_EQ(options.json, "a.json");
}

TEST(InvalidCheckOptionsAreReported) {
  Options options;
  const char* unknown[] = {"cuda_check", "--fast"};
  EXPECT_EQ(ParseOptions(2, unknown, &options), "unknown argument --fast");
  const char* valueless[] = {"cuda_check", "--json"};
  EXPECT_EQ(ParseOptions(2, valueless, &options), "--json needs a value");
}

TEST(MedianIsTheMiddle) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
}

TEST(DifferencesAreFoundWithPlaceAndValues) {
  EXPECT_EQ(FirstDifference({1, 2}, {1, 2}, 0), "");
  EXPECT_EQ(FirstDifference({1, 2.5}, {1, 2}, 0.1), "[1] is 2.5, expected 2");
  EXPECT_EQ(FirstDifference({100.5}, {100}, 0.1), "");
  EXPECT_EQ(FirstDifference({1}, {1, 2}, 0), "1 values, expected 2");
  EXPECT_EQ(FirstDifference({kNan, kInfinity}, {kNan, kInfinity}, 0), "");
  EXPECT_EQ(FirstDifference({kNan}, {1}, 1e9), "[0] is nan, expected 1");
  EXPECT_EQ(FirstDifference({1}, {kNan}, 1e9), "[0] is 1, expected nan");
  EXPECT_EQ(FirstDifference({-kInfinity}, {kInfinity}, 1), "[0] is -inf, expected inf");
}

TEST(TheTableHasFailuresTimesAndShares) {
  const std::string table = Table(ExampleReport());
  EXPECT_EQ(Failures(ExampleReport()), 1);
  EXPECT_TRUE(Has(table, "FAILED RowMerge n=1: [0] is 1, expected 2\n"));
  EXPECT_TRUE(Has(table, "2 comparisons, 1 failed"));
  EXPECT_TRUE(Has(table, "1 comparisons, 0 failed"));
  EXPECT_TRUE(Has(table, "copy 2000.0 GB/s"));
  EXPECT_TRUE(Has(table, "2.0000    1000.0     50%"));
}

TEST(JsonHasAllResultsAndQuotesText) {
  Report report = ExampleReport();
  report.timings[0].work.flops = kNan;
  const std::string json = Json(report);
  for (const char* part :
       {"\"device\": \"Card \\\"X\\\"\"", "\"failures\": 1", "\"ms\": 2,", "\"launches\": 3",
        "\"share_of_copy\": 0.5", "\"flops\": null", "\"failure\": \"[0] is 1, expected 2\""}) {
    EXPECT_TRUE(Has(json, part));
  }
  EXPECT_TRUE(Has(Json(Report()), "\"comparisons\": []"));
}

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
