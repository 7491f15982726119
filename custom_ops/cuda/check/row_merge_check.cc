#include <utility>
#include <vector>

#include "custom_ops/cuda/check/row_problem.h"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

template <class T>
std::vector<T> FromDevice(const T* data, int64_t size) {
  DeviceArray<T> copy(size);
  CopyBytes(data, size * static_cast<int64_t>(sizeof(T)), copy.data(), nullptr);
  return copy.Get();
}

template <class Index>
void CheckMergeOf(Run* run, const std::vector<int64_t>& ids, const Size& size,
                  const std::string& what) {
  const MergeOnGpu<Index> gpu(ids, size, run->stream());
  run->ExpectOk(what, gpu.launched);
  const largeout::MergedRows cpu = MergeOnCpu(ids, size.num_rows);
  const auto segments = FromDevice(gpu.merged.num_segments, 1);
  run->ExpectNear(what + " segments", segments, {static_cast<int32_t>(cpu.size())});
  if (segments[0] != cpu.size() || ids.empty()) return;
  run->ExpectNear(what + " ids", FromDevice(gpu.merged.ids, cpu.size()), cpu.ids);
  run->ExpectNear(what + " offsets", FromDevice(gpu.merged.offsets, cpu.size() + 1),
                  {cpu.offsets.begin(), cpu.offsets.end()});
  run->ExpectNear(what + " positions",
                  FromDevice(gpu.merged.positions, static_cast<int64_t>(cpu.positions.size())),
                  cpu.positions);
}

void CheckRowMerge(Run* run) {
  for (const Size& size : kSizes) {
    const auto ids = RandomIds(size, true);
    CheckMergeOf<int32_t>(run, ids, size, Text(size) + " int32");
    CheckMergeOf<int64_t>(run, ids, size, Text(size) + " int64");
    const Size wide{size.num_rows + (int64_t{1} << 32), size.num_ids, size.dim};
    CheckMergeOf<int64_t>(run, ids, wide, Text(wide) + " int64");
  }
  // Row numbers above 32 bits, invalid ids, and a matrix without rows.
  constexpr int64_t kLarge = int64_t{1} << 41;
  const std::pair<int64_t, std::vector<int64_t>> cases[] = {
      {kLarge + 1, {kLarge, 3, kLarge, kLarge + 1, -3}},
      {5, {3, -1, 3, int64_t{1} << 40, 0, 5, -(int64_t{1} << 62)}},
      {7, {-1, 7, 7}},
      {7, {6}},
      {0, {0, 0}}};
  for (const auto& [num_rows, ids] : cases) {
    const Size size{num_rows, static_cast<int64_t>(ids.size()), 1};
    CheckMergeOf<int64_t>(run, ids, size, Text(size) + " given ids");
  }
  if (run->small()) return;
  for (const Size size : {Size{10000000, 1000000, 1}, Size{10000000, 10000000, 1}}) {
    const auto ids = RandomIds(size, false);
    CheckMergeOf<int64_t>(run, ids, size, Text(size));
    MergeOnGpu<int64_t> gpu(ids, size, run->stream());
    // Reads ids; writes ids, offsets and positions. (The sort moves more bytes.)
    const double bytes = static_cast<double>(size.num_ids) * (8 + 8 + 4 + 4);
    run->Time(Text(size), {bytes, 0}, [&] { return gpu.Again(); });
  }
}

const bool registered = Register("RowMerge", CheckRowMerge);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
