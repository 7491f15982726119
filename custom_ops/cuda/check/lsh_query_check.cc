#include <string>
#include <vector>

#include "custom_ops/core/lsh_pool.h"
#include "custom_ops/core/lsh_tables.h"
#include "custom_ops/core/lsh_tables_testing.h"
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

struct Size {
  int64_t num_classes, num_tables, num_buckets, batch, num_sampled, max_lookups;
  bool fill;
};

// Empty, few classes, more codes than threads, few lookups, more wanted than there is.
constexpr Size kSizes[] = {{40, 2, 4, 0, 5, 100, true},
                           {40, 2, 4, 3, 5, 100, true},
                           {40, 2, 4, 3, 60, 1000, true},
                           {500, 7, 8, 33, 130, 1024, false},
                           {400, 150, 16, 9, 390, 5000, true},
                           {5000, 3, 64, 17, 3000, 50, true},
                           {100000, 50, 1024, 64, 1000, 1 << 14, true}};
constexpr Size kLarge = {10000000, 16, 1 << 18, 1024, 1024, 1 << 14, true};

std::string Text(const Size& size, const std::string& what) {
  return what + " " +
         Sizes({{"classes", size.num_classes},
                {"tables", size.num_tables},
                {"batch", size.batch},
                {"sampled", size.num_sampled},
                {"lookups", size.max_lookups}});
}

// Tables and queries; codes of -1 are no buckets.
struct Problem {
  explicit Problem(const Size& size)
      : size(size),
        num_tables(size.num_tables),
        ids(RandomInts(num_tables * size.num_classes, 0, size.num_buckets, 1)),
        offsets(num_tables * (size.num_buckets + 1)),
        codes(RandomInts(size.batch * num_tables, -1, size.num_buckets + 1, 2)) {
    for (int32_t label : RandomInts(2 * size.batch, -1, size.num_classes + 1, 3)) {
      labels.push_back(label);
    }
    SortIntoBuckets(num_tables, size.num_buckets, size.num_classes, SerialFor, offsets.data(),
                    ids.data());
  }

  LshTables Tables(const int32_t* offset_data, const int32_t* id_data) const {
    return {offset_data, id_data, num_tables, size.num_buckets, size.num_classes};
  }
  LshQueries Queries(const int32_t* code_data, const int64_t* label_data) const {
    return {code_data, label_data, size.batch, num_tables, 2};
  }
  LshDraw draw() const { return {size.num_sampled, size.max_lookups, size.fill, {3, 4}}; }

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
  const DeviceArray<int64_t> seed(Ids{3, 4});
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
  const DeviceArray<int64_t> seed(Ids{3, 4}), pool(size.num_sampled), num_entries(1);
  const DeviceMemory scratch(DrawEntriesScratchBytes(queries));
  const auto launch = [&] {
    return DrawEntries(tables, queries, size.num_sampled, seed.data(), pool.data(),
                       num_entries.data(), scratch.data(), run->stream());
  };
  Ids cpu_pool(size.num_sampled);
  const int64_t cpu_entries = largeout::DrawEntries(
      one.Tables(one.offsets.data(), one.ids.data()), one.Queries(one.codes.data(), nullptr),
      size.num_sampled, one.draw().seed, SerialFor, cpu_pool.data());
  const Status launched = launch();
  run->Expect(Text(size, "pool") + " ids", launched, pool, cpu_pool);
  run->Expect(Text(size, "pool") + " entries", launched, num_entries, Ids{cpu_entries});
  if (size.num_classes == kLarge.num_classes) run->Time(Text(size, "pool"), {}, launch);
}

// Of classes that are spread over all, some of which codes of -1 leave out.
void CheckFreshShareOf(Run* run, const Size& size) {
  const Problem one(size);
  Ids row_ids(size.batch);
  for (int64_t i = 0; i < size.batch; ++i) row_ids[i] = i * size.num_classes / size.batch;
  const DeviceArray<int32_t> ids(one.ids), offsets(one.offsets), codes(one.codes);
  const DeviceArray<int64_t> gpu_row_ids(row_ids);
  const DeviceArray<float> share(1);
  const Status launched =
      FreshShare(one.Tables(offsets.data(), ids.data()), codes.data(), gpu_row_ids.data(),
                 size.batch, share.data(), run->stream());
  const int64_t fresh = CountFreshEntries(one.Tables(one.offsets.data(), one.ids.data()),
                                          one.codes.data(), row_ids.data(), size.batch);
  run->Expect(Text(size, "fresh share"), launched, share,
              std::vector<float>{ShareOf(fresh, size.batch * one.num_tables)});
}

void CheckPools(Run* run) {
  for (const Size& size : kSizes) CheckPoolOf(run, size);
  if (!run->small()) CheckPoolOf(run, kLarge);
}

void CheckFreshShares(Run* run) {
  for (const Size& size : kSizes) CheckFreshShareOf(run, size);
}

const bool registered = Register("LshQuery", CheckQueries) && Register("LshPool", CheckPools) &&
                        Register("LshFreshShare", CheckFreshShares);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
