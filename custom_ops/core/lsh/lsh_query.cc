#include "custom_ops/core/lsh/lsh_query.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "custom_ops/core/lsh/met_ids.h"
#include "custom_ops/core/lsh/most_met.h"
#include "custom_ops/core/lsh/uniform_fill.h"

namespace largeout {
namespace {

bool InRange(int32_t id, int64_t num_classes) { return 0 <= id && id < num_classes; }

// Calls visit(id) on the `length` entries of a bucket, starting at `place` and wrapping around,
// as long as it returns true.
template <class Visit>
void ForEachFrom(const Bucket& bucket, int64_t place, int64_t length, const MetIds& met,
                 const Visit& visit) {
  constexpr int64_t kAhead = 12;
  const int64_t before_end = std::min(length, bucket.size - place);
  const int32_t* parts[] = {bucket.ids + place, bucket.ids};
  const int64_t lengths[] = {before_end, length - before_end};
  for (int part = 0; part < 2; ++part) {
    for (int64_t i = 0; i < lengths[part]; ++i) {
      if (i + kAhead < lengths[part]) met.Prefetch(parts[part][i + kAhead]);
      if (!visit(parts[part][i])) return;
    }
  }
}

// Processes the queries of one thread. Its memory depends on the largest query.
class ExampleQuery {
 public:
  ExampleQuery(const LshTables& tables, const LshQueries& queries, const LshDraw& draw)
      : tables_(tables), queries_(queries), draw_(draw) {}

  bool sound() const { return sound_; }

  int32_t Walk(int64_t example, int64_t* ids) {
    const QueryDraws draws = Start(example, 0);
    const int32_t* codes = queries_.codes + example * queries_.num_codes;
    const int64_t start = ScaleBits(draws(0).second, queries_.num_codes);
    int64_t found = 0, lookups = draw_.max_lookups;
    for (int64_t j = 0; j < queries_.num_codes; ++j) {
      const int64_t i =
          start + j < queries_.num_codes ? start + j : start + j - queries_.num_codes;
      const Bucket bucket = BucketOfCode(tables_, i, codes[i]);
      const int64_t length = std::min(bucket.size, lookups);
      lookups -= length;
      ForEachFrom(bucket, ScaleBits(draws(1 + i).first, bucket.size), length, met_,
                  [&](int32_t id) {
                    if (Take(id)) ids[found++] = id;
                    return found < draw_.num_sampled;
                  });
      if (found == draw_.num_sampled || lookups == 0) break;
    }
    return Complete(found, found, draws, ids);
  }

  int32_t MostMet(int64_t example, int64_t* ids) {
    const int32_t* codes = queries_.codes + example * queries_.num_codes;
    sizes_.resize(queries_.num_codes);
    for (int64_t i = 0; i < queries_.num_codes; ++i) {
      sizes_[i] = BucketOfCode(tables_, i, codes[i]).size;
    }
    const int64_t longest = LongestStretch(sizes_, draw_.max_lookups);
    int64_t lookups = 0;
    for (int64_t size : sizes_) lookups += std::min(size, longest);
    const int64_t max_met = std::min(lookups, tables_.num_classes);
    const QueryDraws draws = Start(example, max_met);
    most_met_.Clear(max_met);
    for (int64_t i = 0; i < queries_.num_codes; ++i) {
      const Bucket bucket = BucketOfCode(tables_, i, codes[i]);
      const int64_t length = std::min(bucket.size, longest);
      const bool whole = length == bucket.size;
      const int64_t place = whole ? 0 : ScaleBits(draws(1 + i).first, bucket.size);
      ForEachFrom(bucket, place, length, met_, [&](int32_t id) {
        if (Check(id)) most_met_.Count(id, &met_);
        return true;
      });
    }
    const int64_t found = most_met_.Write(met_, draw_.num_sampled, ids);
    return Complete(found, most_met_.size(), draws, ids);
  }

 private:
  // Starts a new query: clears the state and excludes the query's labels. At most `max_met`
  // classes are met before the result is filled up.
  QueryDraws Start(int64_t example, int64_t max_met) {
    met_.Clear(
        std::min(queries_.num_labels + max_met + draw_.num_sampled, tables_.num_classes));
    const int64_t* labels = queries_.labels + example * queries_.num_labels;
    for (int64_t l = 0; l < queries_.num_labels; ++l) {
      if (labels[l] >= 0) met_.Block(static_cast<int32_t>(labels[l]));
    }
    return {draw_.seed, draw_.RowOfDraws(example)};
  }

  bool Check(int32_t id) {
    const bool in_range = InRange(id, tables_.num_classes);
    sound_ = sound_ && in_range;
    return in_range;
  }

  bool Take(int32_t id) { return Check(id) && met_.Insert(id); }

  // Fills up the list after `found` ids. At least num_met classes have been met.
  int32_t Complete(int64_t found, int64_t num_met, const QueryDraws& draws, int64_t* ids) {
    const int64_t missing = draw_.num_sampled - found;
    if (!draw_.fill) {
      std::fill(ids + found, ids + draw_.num_sampled, -1);
      return 0;
    }
    return static_cast<int32_t>(FillUniformly(tables_.num_classes,
                                              num_met + queries_.num_labels, missing, draws,
                                              &met_, ids + found));
  }

  const LshTables& tables_;
  const LshQueries& queries_;
  const LshDraw& draw_;
  MetIds met_;
  MostMetList most_met_;
  std::vector<int64_t> sizes_;
  bool sound_ = true;
};

using Query = int32_t (ExampleQuery::*)(int64_t example, int64_t* ids);

bool ForEachExample(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                    const ParallelFor& parallel, Query query, int64_t max_lookups, int64_t* ids,
                    int32_t* num_filled) {
  const int64_t cycles = 10 * (queries.num_codes + draw.num_sampled + max_lookups);
  std::atomic<bool> sound{true};
  parallel(queries.batch, cycles, [&](int64_t begin, int64_t end) {
    ExampleQuery one(tables, queries, draw);
    for (int64_t example = begin; example < end; ++example) {
      num_filled[example] = (one.*query)(example, ids + example * draw.num_sampled);
    }
    if (!one.sound()) sound = false;
  });
  return sound;
}

}  // namespace

bool WalkBuckets(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                 const ParallelFor& parallel, int64_t* ids, int32_t* num_filled) {
  return ForEachExample(tables, queries, draw, parallel, &ExampleQuery::Walk, 0, ids,
                        num_filled);
}

bool MostMetClasses(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                    const ParallelFor& parallel, int64_t* ids, int32_t* num_filled) {
  const int64_t lookups = std::min(draw.max_lookups, queries.num_codes * tables.num_classes);
  return ForEachExample(tables, queries, draw, parallel, &ExampleQuery::MostMet, lookups, ids,
                        num_filled);
}

}  // namespace largeout
