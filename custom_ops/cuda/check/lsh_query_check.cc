#include <string>
#include <vector>

#include "custom_ops/core/lsh/lsh_pool.h"
#include "custom_ops/core/lsh/lsh_tables.h"
#include "custom_ops/core/lsh/lsh_tables_testing.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/lsh_pool.h"
#include "custom_ops/cuda/lsh_query.h"
#include "custom_ops/cuda/lsh_tables.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

using Ids = std::vector<int64_t>;
using Ints = std::vector<int32_t>;
using testing::RandomInts;

constexpr int64_t kSeed[] = {3, -4};

struct Size {
  int64_t num_classes, num_tables, num_buckets, batch, num_sampled, max_lookups;
  bool fill;
  int64_t num_vectors = 1;  // query vectors per example
  bool damaged = false;
};

// An empty batch, no codes, few classes, almost all and more than all classes wanted, few
// lookups, more codes than threads, damaged tables.
constexpr Size kSizes[] = {{40, 2, 4, 0, 5, 100, true},
                           {40, 2, 4, 2, 5, 100, true, 0},
                           {40, 2, 4, 3, 1, 100, true},
                           {40, 2, 4, 3, 5, 100, true},
                           {40, 2, 4, 3, 60, 1000, true},
                           {500, 7, 8, 5, 1, 1024, true, 2},
                           {500, 7, 8, 33, 130, 1024, false},
                           {500, 7, 8, 5, 130, 1024, true, 2},
                           {500, 7, 8, 5, 480, 1024, true},
                           {500, 7, 8, 5, 500, 1024, false},
                           {500, 7, 8, 5, 510, 1024, true},
                           {400, 150, 16, 5, 5, 1, true, 2},
                           {400, 150, 16, 5, 150, 3, true, 2},
                           {400, 150, 16, 5, 390, 100, true, 2},
                           {400, 150, 16, 9, 390, 5000, true},
                           {400, 150, 16, 5, 150, 200000, true, 2},
                           {5000, 3, 64, 5, 40, 50, true},
                           {5000, 3, 64, 5, 300, 50, true},
                           {5000, 3, 64, 17, 3000, 50, true},
                           {40, 2, 4, 5, 3, 1024, true, 1, true},
                           {40, 2, 4, 5, 30, 1024, true, 2, true},
                           {100000, 50, 1024, 64, 1000, 1 << 14, true}};
constexpr Size kLarge = {10000000, 16, 1 << 18, 1024, 1024, 1 << 14, true};

std::string Text(const Size& size, const std::string& what) {
  return what + (size.damaged ? " damaged " : " ") +
         Sizes({{"classes", size.num_classes},
                {"tables", size.num_tables},
                {"vectors", size.num_vectors},
                {"batch", size.batch},
                {"sampled", size.num_sampled},
                {"lookups", size.max_lookups}});
}

// Tables with large first buckets, and queries. Codes and labels include -1 and values out of
// range, which are ignored.
struct Problem {
  explicit Problem(const Size& size)
      : size(size),
        num_tables(size.num_tables),
        ids(RandomInts(num_tables * size.num_classes, 0, size.num_buckets, 1)),
        offsets(num_tables * (size.num_buckets + 1)),
        codes(RandomInts(size.batch * size.num_vectors * num_tables, -1, size.num_buckets + 1,
                         2)) {
    for (size_t i = 0; i < ids.size(); i += 3) ids[i] = 0;
    for (size_t i = 7; i < codes.size(); i += 11) {
      codes[i] = i % 2 == 0 ? 1 << 30 : static_cast<int32_t>(size.num_buckets);
    }
    for (int32_t label : RandomInts(2 * size.batch, -1, size.num_classes + 1, 3)) {
      labels.push_back(label);
    }
    SortIntoBuckets(num_tables, size.num_buckets, size.num_classes, SerialFor, offsets.data(),
                    ids.data());
    if (!size.damaged) return;
    for (size_t i = 0; i < ids.size(); i += 3) ids[i] = i % 2 == 0 ? -5 : 1 << 30;
    offsets[1] = 1 << 29;
    offsets[7] = -3;
  }

  LshTables Tables(const int32_t* offset_data, const int32_t* id_data) const {
    return {offset_data, id_data, num_tables, size.num_buckets, size.num_classes};
  }
  LshQueries Queries(const int32_t* code_data, const int64_t* label_data) const {
    return {code_data, label_data, size.batch, size.num_vectors * num_tables, 2};
  }
  LshDraw draw() const {
    const PhiloxSeed seed{static_cast<uint64_t>(kSeed[0]), static_cast<uint64_t>(kSeed[1])};
    return {size.num_sampled, size.max_lookups, size.fill, seed};
  }

  const Size size;
  const int64_t num_tables;
  Ints ids, offsets, codes;
  Ids labels;
};

void CheckQueriesOf(Run* run, const Size& size) {
  const Problem one(size);
  const DeviceArray<int32_t> ids(one.ids), offsets(one.offsets), codes(one.codes);
  const DeviceArray<int64_t> labels(one.labels);
  const LshTables tables = one.Tables(offsets.data(), ids.data());
  const LshQueries queries = one.Queries(codes.data(), labels.data());
  const DeviceArray<int64_t> seed(Ids{kSeed[0], kSeed[1]});
  for (const bool most_met : {false, true}) {
    const std::string text = Text(size, most_met ? "most met" : "walk");
    const DeviceMemory scratch(
        (most_met ? MostMetClassesScratchBytes : WalkBucketsScratchBytes)(queries, one.draw()));
    const DeviceArray<int64_t> sampled(size.batch * size.num_sampled);
    const DeviceArray<int32_t> filled(size.batch);
    const auto launch = [&] {
      return (most_met ? MostMetClasses : WalkBuckets)(tables, queries, one.draw(), seed.data(),
                                                       sampled.data(), filled.data(),
                                                       scratch.data(), run->stream());
    };
    Ids cpu_sampled(sampled.size());
    Ints cpu_filled(size.batch);
    (most_met ? largeout::MostMetClasses : largeout::WalkBuckets)(
        one.Tables(one.offsets.data(), one.ids.data()),
        one.Queries(one.codes.data(), one.labels.data()), one.draw(), SerialFor,
        cpu_sampled.data(), cpu_filled.data());
    const Status launched = launch();
    run->Expect(text + " ids", launched, sampled, cpu_sampled);
    run->Expect(text + " filled", launched, filled, cpu_filled);
    if (size.num_classes == kLarge.num_classes) run->Time(text, {}, launch);
  }
}

void CheckQueries(Run* run) {
  for (const Size& size : kSizes) CheckQueriesOf(run, size);
  if (!run->small()) CheckQueriesOf(run, kLarge);
}

// The pool of a batch.
void CheckPoolOf(Run* run, const Size& size) {
  const Problem one(size);
  const DeviceArray<int32_t> ids(one.ids), offsets(one.offsets), codes(one.codes);
  const LshTables tables = one.Tables(offsets.data(), ids.data());
  const LshQueries queries = one.Queries(codes.data(), nullptr);
  const DeviceArray<int64_t> seed(Ids{kSeed[0], kSeed[1]}), pool(size.num_sampled),
      num_entries(1);
  const DeviceMemory scratch(DrawEntriesScratchBytes(queries));
  const auto launch = [&] {
    return DrawEntries(tables, queries, size.num_sampled, seed.data(), pool.data(),
                       num_entries.data(), scratch.data(), run->stream());
  };
  Ids cpu_pool(size.num_sampled);
  const int64_t cpu_entries = largeout::DrawEntries(
      one.Tables(one.offsets.data(), one.ids.data()), one.Queries(one.codes.data(), nullptr),
      size.num_sampled, one.draw().seed, SerialFor, cpu_pool.data());
  for (int64_t& id : cpu_pool) id = id < size.num_classes && id >= 0 ? id : -1;
  const Status launched = launch();
  run->Expect(Text(size, "pool") + " ids", launched, pool, cpu_pool);
  run->Expect(Text(size, "pool") + " entries", launched, num_entries, Ids{cpu_entries});
  if (size.num_classes == kLarge.num_classes) run->Time(Text(size, "pool"), {}, launch);
}

// The classes are spread over all ids. One code in five differs from the table's. Some codes
// and ids are invalid.
void CheckFreshShareOf(Run* run, const Size& size, int64_t num_rows) {
  const Problem one(size);
  const LshTables tables = one.Tables(one.offsets.data(), one.ids.data());
  Ids row_ids(num_rows);
  Ints row_codes(num_rows * one.num_tables, -1);
  for (int64_t i = 0; i < num_rows; ++i) row_ids[i] = i * size.num_classes / num_rows;
  for (size_t i = 0; i < row_codes.size(); ++i) {
    for (int32_t code = 0; code < size.num_buckets && i % 5 != 0; ++code) {
      const Bucket bucket = BucketOfCode(tables, static_cast<int64_t>(i), code);
      if (Holds(bucket, row_ids[i / one.num_tables])) row_codes[i] = code;
    }
    if (i % 5 == 0) row_codes[i] = i % 2 == 0 ? 1 << 30 : 1;
  }
  for (int64_t i = 3; i < num_rows; i += 8)
    row_ids[i] += i % 16 == 3 ? int64_t{1} << 32 : -size.num_classes;
  const DeviceArray<int32_t> ids(one.ids), offsets(one.offsets), codes(row_codes);
  const DeviceArray<int64_t> gpu_row_ids(row_ids);
  const DeviceArray<float> share(1);
  const Status launched = FreshShare(one.Tables(offsets.data(), ids.data()), codes.data(),
                                     gpu_row_ids.data(), num_rows, share.data(), run->stream());
  const int64_t fresh = CountFreshEntries(tables, row_codes.data(), row_ids.data(), num_rows);
  run->Expect(Text(size, "fresh share") + " rows=" + std::to_string(num_rows), launched, share,
              std::vector<float>{ShareOf(fresh, num_rows * one.num_tables)});
}

void CheckPools(Run* run) {
  for (const Size& size : kSizes) CheckPoolOf(run, size);
  if (!run->small()) CheckPoolOf(run, kLarge);
}

void CheckFreshShares(Run* run) {
  for (const int64_t num_rows : {0, 1, 7, 97, 300}) {
    CheckFreshShareOf(run, {300, 3, 4, 0, 0, 0, false}, num_rows);
  }
  CheckFreshShareOf(run, {5000, 20, 64, 0, 0, 0, false}, 1000);
}

const bool registered = Register("LshQuery", CheckQueries) && Register("LshPool", CheckPools) &&
                        Register("LshFreshShare", CheckFreshShares);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
