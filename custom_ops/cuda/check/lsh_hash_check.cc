#include <cmath>
#include <string>
#include <vector>

#include "custom_ops/core/lsh/lsh_hash_testing.h"
#include "custom_ops/core/lsh/lsh_tables.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/lsh_hash.h"
#include "custom_ops/cuda/lsh_tables.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

using Ints = std::vector<int32_t>;
using testing::kKinds;
using testing::Normal;
using testing::OwnedFamily;

struct Size {
  int64_t num_rows, dim;
  int num_hashes, num_tables, bits;
  int bin_size = 8;
};

// Widths for which rows take one, two or more passes, with and without padding, and with one or
// more blocks of values; one bucket; one table. The widest rows do not fit into shared memory.
constexpr Size kSizes[] = {
    {0, 16, 2, 3, 4},        {1, 1, 1, 1, 1},       {1, 4, 1, 20, 1},
    {33, 3, 4, 5, 12},       {100, 64, 9, 50, 8},   {65, 256, 6, 16, 12},
    {40, 600, 4, 6, 8},      {257, 100, 6, 20, 14}, {19, 3000, 2, 5, 6},
    {9, 9000, 4, 30, 10},    {17, 13000, 2, 3, 6},  {1000, 128, 30, 4, 16},
    {7, 130, 3, 50, 10},     {7, 500, 3, 50, 10},   {7, 1000, 3, 50, 10},
    {7, 2048, 3, 50, 10},    {7, 8192, 3, 50, 10},  {70, 1000, 4, 250, 10, 2},
    {21, 70, 9, 20, 12, 16}, {11, 20, 5, 1, 9},
};
constexpr Size kLarge = {10000000, 128, 6, 16, 18};

const char* const kNames[] = {"simhash", "wta", "dwta"};

std::string Text(HashKind kind, const Size& size) {
  return std::string(kNames[static_cast<int>(kind)]) + " " +
         Sizes({{"rows", size.num_rows},
                {"dim", size.dim},
                {"hashes", size.num_hashes},
                {"tables", size.num_tables},
                {"bits", size.bits}});
}

// `numbers`, repeated `times` times.
template <class T>
std::vector<T> Repeated(const std::vector<T>& numbers, int64_t times) {
  std::vector<T> all;
  all.reserve(numbers.size() * times);
  for (int64_t i = 0; i < times; ++i) all.insert(all.end(), numbers.begin(), numbers.end());
  return all;
}

// Half of the rows are sparse, so that bins borrow values. The first row has all special values
// of a float.
std::vector<float> Rows(int64_t num_rows, int64_t dim) {
  std::vector<float> rows = Normal((num_rows + 1) / 2 * dim, 0.3);
  const std::vector<float> sparse = Normal(num_rows / 2 * dim, 0.98);
  rows.insert(rows.end(), sparse.begin(), sparse.end());
  for (int64_t k = 0; k < dim && num_rows > 5; ++k) {
    rows[k] = 0;
    rows[dim + k] = k % 3 == 0 ? NAN : k % 3 == 1 ? INFINITY : -INFINITY;
    rows[2 * dim + k] = k == dim / 2 ? 1e-40f : -0.0f;
  }
  return rows;
}

// A family with its functions, also on the GPU. If there are many rows, the CPU hashes only the
// first ones and repeats their codes.
struct Problem {
  Problem(HashKind kind, const Size& size, int64_t skipped = 0)
      : owned(kind, size.dim, size.num_hashes, size.num_tables, size.bits, size.bin_size),
        repeats(size.num_rows == kLarge.num_rows ? 20 : 1),
        rows(Rows(size.num_rows / repeats, size.dim)),
        functions(owned.functions, skipped),
        gpu_rows(Repeated(rows, repeats), skipped),
        gpu_family(owned.family),
        num_rows(size.num_rows) {
    gpu_family.functions = functions.data();
  }

  // [num_tables, num_rows], from the CPU.
  Ints Codes() const {
    const Ints codes = owned.Codes(rows);
    const int64_t num_tables = owned.family.num_tables, part = num_rows / repeats;
    Ints all;
    all.reserve(num_tables * num_rows);
    for (int64_t table = 0; table < num_tables; ++table) {
      const auto begin = codes.begin() + table * part;
      const Ints of_all = Repeated(Ints(begin, begin + part), repeats);
      all.insert(all.end(), of_all.begin(), of_all.end());
    }
    return all;
  }

  const OwnedFamily owned;
  const int64_t repeats;
  const std::vector<float> rows;
  const DeviceArray<int32_t> functions;
  const DeviceArray<float> gpu_rows;
  HashFamily gpu_family;
  const int64_t num_rows;
};

void CheckHashes(Run* run) {
  for (const HashKind kind : kKinds) {
    for (const Size& size : kSizes) {
      const Problem one(kind, size);
      const DeviceMemory scratch(HashScratchBytes(one.gpu_family));
      const DeviceArray<int32_t> codes(size.num_rows * size.num_tables);
      const Status hashed =
          HashRows(one.gpu_family, one.gpu_rows.data(), one.num_rows,
                   {codes.data(), 1, one.num_rows}, scratch.data(), run->stream());
      run->Expect(Text(kind, size) + " codes", hashed, codes, one.Codes());
      Ints by_row(codes.size());
      HashQueries(one.owned.family, one.rows.data(), one.num_rows, SerialFor, by_row.data());
      for (const int64_t skipped : {0, 1}) {  // aligned for reads by fours, or not
        const Problem again(kind, size, skipped);
        const Status queried =
            HashRows(again.gpu_family, again.gpu_rows.data(), one.num_rows,
                     {codes.data(), size.num_tables, 1}, scratch.data(), run->stream());
        run->Expect(Text(kind, size) + " codes by row", queried, codes, by_row);
      }
    }
  }
}

// Invalid coordinates are ignored. One valid coordinate of the first bin is left.
void CheckBadFunctions(Run* run) {
  OwnedFamily owned(HashKind::kWta, 16, 1, 2, 3);
  for (int j = 0; j < 8; ++j) owned.functions[j] = j % 2 == 0 ? 1 << 20 : -j;
  owned.functions[5] = 3;
  const DeviceArray<int32_t> functions(owned.functions), codes(2);
  const DeviceArray<float> rows(Normal(16));
  const DeviceMemory scratch(HashScratchBytes(owned.family));
  HashFamily family = owned.family;
  family.functions = functions.data();
  run->ExpectOk("bad functions", HashRows(family, rows.data(), 1, {codes.data(), 2, 1},
                                          scratch.data(), run->stream()));
  run->ExpectNear("bad functions", Ints{codes.Get()[0]}, {5});
}

// The tables of the CPU and of the GPU.
void CheckTablesOf(Run* run, HashKind kind, const Size& size) {
  const Problem one(kind, size);
  const int64_t num_offsets = size.num_tables * ((int64_t{1} << size.bits) + 1);
  const DeviceArray<int32_t> offsets(num_offsets), ids(size.num_tables * size.num_rows);
  const DeviceMemory scratch(BuildLshTablesScratchBytes(one.gpu_family, one.num_rows));
  const auto launch = [&] {
    return BuildLshTables(one.gpu_family, one.gpu_rows.data(), one.num_rows, offsets.data(),
                          ids.data(), scratch.data(), run->stream());
  };
  Ints cpu_offsets(num_offsets), cpu_ids = one.Codes();
  SortIntoBuckets(size.num_tables, int64_t{1} << size.bits, one.num_rows, SerialFor,
                  cpu_offsets.data(), cpu_ids.data());
  const Status launched = launch();
  run->Expect(Text(kind, size) + " offsets", launched, offsets, cpu_offsets);
  run->Expect(Text(kind, size) + " ids", launched, ids, cpu_ids);
  if (size.num_rows < kLarge.num_rows) return;
  // The minimum. The sorts move more bytes.
  const double read = 4.0 * size.num_rows * size.dim, written = 4.0 * ids.size();
  run->Time(Text(kind, size), {read + written, 0}, launch);
  run->Time("codes of " + Text(kind, size), {read + written, 0}, [&] {
    return HashRows(one.gpu_family, one.gpu_rows.data(), one.num_rows,
                    {ids.data(), 1, one.num_rows}, scratch.data(), run->stream());
  });
}

void CheckTables(Run* run) {
  for (const HashKind kind : kKinds) {
    for (const Size& size : kSizes) CheckTablesOf(run, kind, size);
    if (!run->small()) CheckTablesOf(run, kind, kLarge);
  }
}

void CheckAllHashes(Run* run) {
  CheckHashes(run);
  CheckBadFunctions(run);
}

const bool registered =
    Register("LshHash", CheckAllHashes) && Register("LshTables", CheckTables);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
