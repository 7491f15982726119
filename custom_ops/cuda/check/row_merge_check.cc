#include <random>
#include <string>
#include <utility>
#include <vector>

#include "custom_ops/core/rows/row_merge.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/memory.h"
#include "custom_ops/cuda/row_merge.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

struct Size {
  int64_t num_rows, num_ids;
};

// Empty, one, sizes that no block divides, all ids equal, more ids than rows.
constexpr Size kSizes[] = {{5, 0},    {1, 1},   {1, 1000},    {9, 100},
                           {300, 99}, {12, 41}, {8000, 4099}, {3, 20011}};

std::string Text(const Size& size) {
  return Sizes({{"rows", size.num_rows}, {"ids", size.num_ids}});
}

// Some ids may be invalid: the GPU skips them, and the CPU does not accept them.
std::vector<int64_t> RandomIds(const Size& size, bool with_bad_ids) {
  std::mt19937 random(3);
  std::vector<int64_t> ids(size.num_ids);
  for (int64_t& id : ids) {
    id = static_cast<int64_t>(random() % size.num_rows);
    if (with_bad_ids && random() % 8 == 0) id = random() % 2 == 0 ? -1 - id : size.num_rows;
  }
  return ids;
}

// The CPU's segments for the valid ids.
largeout::MergedRows MergeOnCpu(const std::vector<int64_t>& ids, int64_t num_rows) {
  std::vector<int64_t> rows;
  std::vector<int32_t> places;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= num_rows) continue;
    rows.push_back(ids[i]);
    places.push_back(static_cast<int32_t>(i));
  }
  auto merged = largeout::MergeRows(rows.data(), static_cast<int64_t>(rows.size()), SerialFor);
  for (int32_t& position : merged.positions) position = places[position];
  return merged;
}

struct MergeOnGpu {
  MergeOnGpu(const std::vector<int64_t>& input, int64_t num_rows, Stream stream)
      : ids(input),
        num_rows(num_rows),
        scratch(MergeRowsScratchBytes(ids.size(), num_rows)),
        stream(stream) {
    launched = Again();
  }
  Status Again() {
    return MergeRows(ids.data(), ids.size(), num_rows, scratch.data(), &merged, stream);
  }

  const DeviceArray<int64_t> ids;
  const int64_t num_rows;
  const DeviceMemory scratch;
  const Stream stream;
  MergedRows merged;
  Status launched;
};

template <class T>
std::vector<T> FromDevice(const T* data, int64_t size) {
  DeviceArray<T> copy(size);
  CopyBytes(data, size * static_cast<int64_t>(sizeof(T)), copy.data(), nullptr);
  return copy.Get();
}

void CheckMergeOf(Run* run, const std::vector<int64_t>& ids, int64_t num_rows) {
  const std::string what = Text({num_rows, static_cast<int64_t>(ids.size())});
  const MergeOnGpu gpu(ids, num_rows, run->stream());
  run->ExpectOk(what, gpu.launched);
  const largeout::MergedRows cpu = MergeOnCpu(ids, num_rows);
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
    CheckMergeOf(run, ids, size.num_rows);
    CheckMergeOf(run, ids, size.num_rows + (int64_t{1} << 32));
  }
  // Row numbers above 32 bits, invalid ids, and a matrix without rows.
  constexpr int64_t kLarge = int64_t{1} << 41;
  const std::pair<int64_t, std::vector<int64_t>> cases[] = {
      {kLarge + 1, {kLarge, 3, kLarge, kLarge + 1, -3}},
      {5, {3, -1, 3, int64_t{1} << 40, 0, 5, -(int64_t{1} << 62)}},
      {7, {-1, 7, 7}},
      {7, {6}},
      {0, {0, 0}}};
  for (const auto& [num_rows, ids] : cases) CheckMergeOf(run, ids, num_rows);
  if (run->small()) return;
  for (const Size size : {Size{10000000, 1000000}, Size{10000000, 10000000}}) {
    const auto ids = RandomIds(size, false);
    CheckMergeOf(run, ids, size.num_rows);
    MergeOnGpu gpu(ids, size.num_rows, run->stream());
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
