#include "custom_ops/core/lsh/lsh_query.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/lsh/most_met.h"

namespace largeout {
namespace {

using Ids = std::vector<int64_t>;
using Ints = std::vector<int32_t>;

// Tables with given codes.
struct Tables {
  Tables(int64_t num_tables, int64_t num_buckets, const Ints& codes)
      : num_tables(num_tables),
        num_buckets(num_buckets),
        num_classes(codes.size() / num_tables),
        codes(codes),
        ids(codes),
        offsets(num_tables * (num_buckets + 1)) {
    SortIntoBuckets(num_tables, num_buckets, num_classes, SerialFor, offsets.data(),
                    ids.data());
  }

  LshTables view() const {
    return {offsets.data(), ids.data(), num_tables, num_buckets, num_classes};
  }

  // How often each class occurs in the buckets of a query.
  std::map<int64_t, int> Met(const int32_t* row, int64_t num_codes) const {
    std::map<int64_t, int> met;
    for (int64_t i = 0; i < num_codes; ++i) {
      for (int64_t c = 0; c < num_classes; ++c) {
        if (codes[i % num_tables * num_classes + c] == row[i]) ++met[c];
      }
    }
    return met;
  }

  int64_t num_tables, num_buckets, num_classes;
  Ints codes, ids, offsets;
};

Tables RandomTables(int64_t num_tables, int64_t num_buckets, int64_t num_classes) {
  Ints codes(num_tables * num_classes);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<int32_t>(ScaleBits(BitsOfDraw({5, 6}, i).first, num_buckets));
  }
  return Tables(num_tables, num_buckets, codes);
}

struct Result {
  Ids ids;
  Ints num_filled;
  bool sound;
};

using Query = decltype(&WalkBuckets);

Result Ask(Query query, const Tables& tables, const Ints& codes, const Ids& labels,
           int64_t num_sampled, int64_t batch = 1, uint64_t seed = 1, bool fill = true,
           int64_t max_lookups = 1 << 14) {
  Result result{Ids(batch * num_sampled, -7), Ints(batch, -7), false};
  const LshQueries queries{codes.data(), labels.data(), batch,
                           static_cast<int64_t>(codes.size()) / batch,
                           static_cast<int64_t>(labels.size()) / batch};
  result.sound = query(tables.view(), queries, {num_sampled, max_lookups, fill, {seed, 3}},
                       SerialFor, result.ids.data(), result.num_filled.data());
  return result;
}

void CheckDistinctWithout(const Ids& ids, const Ids& labels) {
  const std::set<int64_t> seen(ids.begin(), ids.end());
  EXPECT_EQ(seen.size(), ids.size());
  for (int64_t label : labels) EXPECT_EQ(seen.count(label), 0);
}

TEST(BothQueriesGiveDistinctClassesOfTheBucketsBeforeTheyFill) {
  const Tables tables = RandomTables(7, 8, 500);
  const Ints codes{0, 3, 3, 7, 1, 2, 6};
  const Ids labels{11, -1, 400};
  auto met = tables.Met(codes.data(), 7);
  for (int64_t label : labels) met.erase(label);
  for (const Query query : {WalkBuckets, MostMetClasses}) {
    for (const int64_t m : {1, 40, 480, 497}) {
      const Result result = Ask(query, tables, codes, labels, m);
      CheckDistinctWithout(result.ids, labels);
      const int64_t found = std::min<int64_t>(m, met.size());
      EXPECT_EQ(result.num_filled[0], m - found);
      for (int64_t i = 0; i < found; ++i) EXPECT_EQ(met.count(result.ids[i]), 1);
      EXPECT_TRUE(result.sound);
    }
  }
}

TEST(ListsEndInMinusOneIfTooFewClassesAreLeft) {
  const Tables tables = RandomTables(2, 4, 10);
  for (const Query query : {WalkBuckets, MostMetClasses}) {
    const Result result = Ask(query, tables, {0, 1}, {3, 5}, 12);
    CheckDistinctWithout({result.ids.begin(), result.ids.begin() + 8}, {3, 5, -1});
    EXPECT_EQ(Ids(result.ids.begin() + 8, result.ids.end()), (Ids{-1, -1, -1, -1}));
    Ids all(10);
    for (int64_t i = 0; i < 10; ++i) all[i] = i;
    const Result none = Ask(query, tables, {0, 1}, all, 3);
    EXPECT_EQ(none.ids, (Ids{-1, -1, -1}));
    EXPECT_EQ(none.num_filled[0], 0);
  }
}

TEST(MostMetIsASortByCountAndId) {
  const Tables tables = RandomTables(20, 4, 300);
  Ints codes(20);
  for (int32_t t = 0; t < 20; ++t) codes[t] = t % 4;
  const auto met = tables.Met(codes.data(), 20);
  std::vector<std::pair<int, int64_t>> sorted;
  for (const auto& [id, count] : met) sorted.push_back({-count, id});
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t m : {1, 5, 100, 250}) {
    const Result result = Ask(MostMetClasses, tables, codes, {}, m);
    Ids expected;
    for (int64_t i = 0; i < m; ++i) expected.push_back(sorted[i].second);
    for (int64_t i = 1; i < m; ++i) {
      EXPECT_GE(met.at(result.ids[i - 1]), met.at(result.ids[i]));
    }
    // In table 0 all ids of the bucket are met in order, before any other ids.
    const auto in_first = [&](int64_t id) { return tables.codes[id] == codes[0]; };
    for (int64_t i = 1; i < m; ++i) {
      const int64_t before = result.ids[i - 1], id = result.ids[i];
      if (met.at(before) != met.at(id) || !in_first(id)) continue;
      EXPECT_TRUE(in_first(before));
      EXPECT_LT(before, id);
    }
    Ids ids = result.ids;
    std::sort(ids.begin(), ids.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(ids, expected);
  }
}

TEST(NegativeCodesAreIgnoredAndMissingClassesAreFilledUp) {
  const Tables tables = RandomTables(3, 4, 1000);
  for (const Query query : {WalkBuckets, MostMetClasses}) {
    EXPECT_EQ(Ask(query, tables, {-1, -1, -1}, {}, 10).num_filled[0], 10);
    const Ints codes{-1, 2, -1};
    const auto met = tables.Met(codes.data(), 3);
    const Result result = Ask(query, tables, codes, {}, 10, 1, 1, false);
    for (int64_t id : result.ids) EXPECT_EQ(met.count(id), 1);
  }
}

TEST(WithoutFillingTheListIsPadded) {
  const Tables tables(1, 2, {0, 0, 1, 1, 1});
  for (const Query query : {WalkBuckets, MostMetClasses}) {
    const Result result = Ask(query, tables, {0}, {1}, 3, 1, 1, false);
    EXPECT_EQ(result.ids, (Ids{0, -1, -1}));
    EXPECT_EQ(result.num_filled[0], 0);
  }
}

TEST(SeveralVectorsPerExampleQueryInTurn) {
  const Tables tables = RandomTables(3, 6, 200);
  const Ints codes{0, 1, 2, 5, 4, 3};  // two vectors
  const auto met = tables.Met(codes.data(), 6);
  for (const Query query : {WalkBuckets, MostMetClasses}) {
    const int64_t m = met.size();
    const Result result = Ask(query, tables, codes, {}, m);
    EXPECT_EQ(result.num_filled[0], 0);
    for (int64_t id : result.ids) EXPECT_EQ(met.count(id), 1);
  }
}

// Two disjoint buckets that both have enough classes, so the start determines the result.
TEST(TheWalkStartsInEachTableAndPlaceEquallyOften) {
  Ints codes(2 * 40);
  for (int32_t c = 0; c < 40; ++c) codes[c] = c >= 20, codes[40 + c] = c < 20;
  const Tables tables(2, 2, codes);  // the query's buckets: 0..19 and 20..39
  std::vector<int> first(40);
  const int draws = 20000;
  for (int seed = 0; seed < draws; ++seed) {
    ++first[Ask(WalkBuckets, tables, {0, 0}, {}, 2, 1, seed).ids[0]];
  }
  for (int count : first) {
    EXPECT_NEAR(count, draws / 40.0, 5 * std::sqrt(draws / 40.0));
  }
}

TEST(FillDrawsAreUniform) {
  const Tables tables(1, 2, Ints(50, 1));
  std::vector<int> counts(50);
  const int draws = 4000;
  for (const int64_t m : {5, 45}) {  // by rejection, and by a shuffle
    std::fill(counts.begin(), counts.end(), 0);
    for (int seed = 0; seed < draws; ++seed) {
      const Result result = Ask(WalkBuckets, tables, {0}, {7}, m, 1, seed);
      EXPECT_EQ(result.num_filled[0], m);
      for (int64_t id : result.ids) ++counts[id];
    }
    EXPECT_EQ(counts[7], 0);
    const double p = m / 49.0;
    for (int c = 0; c < 50; ++c) {
      if (c != 7) EXPECT_NEAR(counts[c], draws * p, 5 * std::sqrt(draws * p * (1 - p)));
    }
  }
}

TEST(LookupsAreBoundedIfAllClassesAreInOneBucket) {
  const Tables tables(3, 2, Ints(3 * 5000, 0));
  const Result walk = Ask(WalkBuckets, tables, {0, 0, 0}, {}, 100, 1, 1, true, 30);
  EXPECT_EQ(walk.num_filled[0], 70);
  const Result most = Ask(MostMetClasses, tables, {0, 0, 0}, {}, 100, 1, 1, true, 30);
  EXPECT_GE(most.num_filled[0], 70);  // 10 in each table
  EXPECT_LE(most.num_filled[0], 90);
}

TEST(IdsOutOfRangeAreReportedAndSkipped) {
  Tables tables(1, 1, Ints(5, 0));
  tables.ids = {0, -5, 1 << 30, 3, 5};
  for (const Query query : {WalkBuckets, MostMetClasses}) {
    const Result result = Ask(query, tables, {0}, {}, 4, 1, 1, false);
    EXPECT_FALSE(result.sound);
    EXPECT_EQ(result.ids[2], -1);
  }
}

TEST(ResultsDoNotDependOnHowTheBatchIsDivided) {
  const Tables tables = RandomTables(5, 16, 2000);
  Ints codes(5 * 33);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = i * 7 % 16;
  const ParallelFor one_by_one = [](int64_t total, int64_t, const auto& work) {
    for (int64_t i = total; i-- > 0;) work(i, i + 1);
  };
  for (const Query query : {WalkBuckets, MostMetClasses}) {
    const Result whole = Ask(query, tables, codes, {}, 700, 33);
    Result parts{Ids(33 * 700), Ints(33), false};
    const LshQueries queries{codes.data(), nullptr, 33, 5, 0};
    query(tables.view(), queries, {700, 1 << 20, true, {1, 3}}, one_by_one, parts.ids.data(),
          parts.num_filled.data());
    EXPECT_EQ(whole.ids, parts.ids);
    EXPECT_EQ(whole.num_filled, parts.num_filled);
  }
}

TEST(LongestStretchUsesTheWholeBudget) {
  EXPECT_GE(LongestStretch({3, 5, 100}, 1000), 100);
  EXPECT_EQ(LongestStretch({3, 5, 100}, 18), 10);
  EXPECT_EQ(LongestStretch({30, 50, 100}, 18), 6);
  EXPECT_EQ(LongestStretch({30, 50, 100}, 2), 0);
  EXPECT_EQ(LongestStretch({}, 2), 0);
}

}  // namespace
}  // namespace largeout
