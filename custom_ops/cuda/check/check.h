// Compares launchers on a GPU with the CPU functions of core, and measures their times. `make
// cuda-check` runs all checks. A check needs no CUDA header, so its file is X_check.cc:
//
//   void CheckScale(Run* run) {
//     for (const int n : {0, 1, 1000}) {
//       const DeviceArray<float> x(RandomFloats(n)), y(n);
//       const Status launched = Scale(x.data(), n, y.data(), run->stream());
//       run->Expect(Sizes({{"n", n}}), launched, y, on_cpu, 1e-6);
//     }
//     if (run->small()) return;
//     run->Time("n=1M", {8e6, 0}, [&] { return Scale(...); });
//   }
//   const bool registered = Register("Scale", CheckScale);

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CHECK_CHECK_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CHECK_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "custom_ops/cuda/check/report.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {
namespace check {

// Device memory. An error ends the check and is reported.
class DeviceMemory {
 public:
  explicit DeviceMemory(int64_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* data() const { return data_; }
  void CopyFrom(const void* host, int64_t bytes, int64_t offset);
  void CopyTo(void* host, int64_t bytes, int64_t offset) const;

 private:
  void* data_ = nullptr;
};

// An array in device memory.
template <class T>
class DeviceArray {
 public:
  // All bytes are 0xAB, so that elements that a launcher does not write are detected. The array
  // starts `skipped` elements after an address that is aligned for all uses.
  explicit DeviceArray(int64_t size, int64_t skipped = 0)
      : size_(size), skipped_(skipped), memory_((size + skipped) * kBytes) {}
  explicit DeviceArray(const std::vector<T>& values, int64_t skipped = 0)
      : DeviceArray(static_cast<int64_t>(values.size()), skipped) {
    Set(values);
  }

  T* data() const { return static_cast<T*>(memory_.data()) + skipped_; }
  int64_t size() const { return size_; }

  void Set(const std::vector<T>& values) {
    memory_.CopyFrom(values.data(), size_ * kBytes, skipped_ * kBytes);
  }
  std::vector<T> Get() const {
    std::vector<T> values(size_);
    memory_.CopyTo(values.data(), size_ * kBytes, skipped_ * kBytes);
    return values;
  }

 private:
  static constexpr int64_t kBytes = sizeof(T);

  const int64_t size_;
  const int64_t skipped_;
  DeviceMemory memory_;
};

// A running check.
class Run {
 public:
  Run(std::string check, bool small, Stream stream, Report* report)
      : check_(std::move(check)), small_(small), stream_(stream), report_(report) {}

  // Whether to use only small sizes and to skip the timings.
  bool small() const { return small_; }
  Stream stream() const { return stream_; }

  // Waits for the device, and records a failure if the launch failed.
  void ExpectOk(const std::string& what, Status launched);

  // Compares the output of a launcher with that of the CPU: |a - e| <= tolerance (1 + |e|).
  template <class T>
  void Expect(const std::string& what, Status launched, const DeviceArray<T>& actual,
              const std::vector<T>& expected, double tolerance = 0) {
    const std::string failure = Finish(launched);
    const std::vector<T> values = failure.empty() ? actual.Get() : std::vector<T>();
    Record(what, !failure.empty()
                     ? failure
                     : FirstDifference({values.begin(), values.end()},
                                       {expected.begin(), expected.end()}, tolerance));
  }
  // The same for values that have been copied to the host.
  template <class T>
  void ExpectNear(const std::string& what, const std::vector<T>& actual,
                  const std::vector<T>& expected, double tolerance = 0) {
    Record(what, FirstDifference({actual.begin(), actual.end()},
                                 {expected.begin(), expected.end()}, tolerance));
  }

  // Measures `launch` by CUDA events, many times after a warm-up, with cold caches. A time
  // starts when the GPU reaches the queued launch, and ends when the launch has finished.
  void Time(const std::string& what, Work work, const std::function<Status()>& launch);

 private:
  // Waits for the device. Returns an error message, or an empty string.
  std::string Finish(Status launched) const;
  void Record(const std::string& what, const std::string& failure);

  const std::string check_;
  const bool small_;
  const Stream stream_;
  Report* const report_;
};

// Adds a check to the list, which runs in the order of names. Returns true.
bool Register(const char* name, void (*check)(Run* run));

// The registered checks, by name.
struct NamedCheck {
  std::string name;
  void (*check)(Run* run);
};
std::vector<NamedCheck> Checks();

// "n=3 dim=5" for Sizes({{"n", 3}, {"dim", 5}}).
std::string Sizes(const std::vector<std::pair<const char*, int64_t>>& sizes);

}  // namespace check
}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CHECK_CHECK_H_
