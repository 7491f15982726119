#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "custom_ops/core/base/aligned_array.h"
#include "custom_ops/core/base/counting_sort.h"
#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/class_scan/best_scores.h"
#include "custom_ops/core/inverted_file/inverted_file.h"
#include "custom_ops/core/inverted_file/inverted_file_simd.h"
#include "custom_ops/core/inverted_file/packed_means.h"

namespace largeout {
namespace {

constexpr int64_t kMostQueries = 1024;  // processed at once
// Held at once, unless a single query has more.
constexpr int64_t kMostScores = int64_t{1} << 25;
constexpr int32_t kGroupsOfBlock = 4;  // as many as the vectorised code processes at once

// The groups of packed rows that contain rows [begin, end).
struct Groups {
  Groups(int32_t begin, int32_t end)
      : first(begin / kGroupRows), last(begin == end ? first : NumGroups(end)) {}
  int64_t num_scores() const { return int64_t{kGroupRows} * (last - first); }
  int32_t first, last;
};

// Appends the blocks of a list.
void AddBlocks(const Groups& groups, int32_t list, std::vector<ListBlock>* blocks) {
  for (int32_t first = groups.first; first < groups.last; first += kGroupsOfBlock) {
    blocks->push_back({list, first, std::min(first + kGroupsOfBlock, groups.last)});
  }
}

// A query searches no further lists once it has as many members as its probes have on average.
int64_t EnoughMembers(const InvertedFile& file, int64_t num_probes) {
  return num_probes * MeanMembers(file.offsets[file.num_lists], file.num_lists);
}

// Scores some queries against the means of the lists, and then against the members.
class Search {
 public:
  Search(const InvertedFile& file, const Features& features, int64_t dim, int64_t num_probes,
         const ParallelFor& parallel)
      : file_(file),
        features_(features),
        dim_(dim),
        num_probes_(std::min(num_probes, file.num_lists)),
        enough_members_(EnoughMembers(file, num_probes_)),
        parallel_(parallel),
        queries_(features, dim, parallel),
        probes_(features.batch * num_probes_, -1),
        segments_(features.batch * (num_probes_ + 1)) {}

  void Run(int64_t k, float* scores, int64_t* ids) {
    ChooseLists();
    GroupByList();
    ScoreMembers();
    parallel_(features_.batch, 50 * k + segments_.back() / features_.batch,
              [&](int64_t begin, int64_t end) {
                ScoreSieve sieve;
                for (int64_t query = begin; query < end; ++query) {
                  WriteBest(query, k, &sieve, scores + query * k, ids + query * k);
                }
              });
  }

 private:
  int64_t* segments(int64_t query) { return &segments_[query * (num_probes_ + 1)]; }
  int32_t* probes(int64_t query) { return &probes_[query * num_probes_]; }

  int64_t size(int64_t list) const { return file_.offsets[list + 1] - file_.offsets[list]; }
  Groups groups(int64_t list) const {
    return Groups(file_.offsets[list], file_.offsets[list + 1]);
  }

  void ChooseLists() {
    const PackedMeans means({file_.means, file_.mean_bias, file_.num_lists, dim_}, parallel_);
    const int64_t cost = file_.num_lists / 2 + 50 * num_probes_;
    means.Score(queries_.view(), features_.batch, cost, parallel_,
                [&](int64_t query, const float* scores, int64_t num_scores, ScoreSieve* sieve) {
                  KeepProbes(query, scores, num_scores, sieve);
                });
  }

  void KeepProbes(int64_t query, const float* scores, int64_t num_scores, ScoreSieve* sieve) {
    std::vector<ScoredClass> best;
    for (int32_t list : sieve->Pass(scores, num_scores, num_probes_)) {
      best.push_back({scores[list], list});
    }
    KeepBest(num_probes_, &best);
    int64_t members = 0;
    for (size_t i = 0; i < best.size() && members < enough_members_; ++i) {
      probes(query)[i] = best[i].id;
      members += size(best[i].id);
    }
  }

  // Assigns a segment of scores to each query for each of its lists, and groups the queries by
  // list.
  void GroupByList() {
    int64_t end = 0;
    for (int64_t query = 0; query < features_.batch; ++query) {
      for (int64_t i = 0; i < num_probes_; ++i) {
        const int32_t list = probes(query)[i];
        segments(query)[i] = end;
        if (list >= 0) end += groups(list).num_scores();
      }
      segments(query)[num_probes_] = end;
    }
    const int64_t no_list = file_.num_lists;
    const auto list_of = [&](int64_t i) { return probes_[i] < 0 ? no_list : probes_[i]; };
    CountingSort by_list(Chunks(probes_.size()), no_list + 1);
    by_list.Count(list_of);
    pair_begin_.resize(no_list + 2);
    by_list.WriteOffsets(pair_begin_.data());
    pairs_.resize(pair_begin_[no_list]);
    by_list.Place(list_of, [&](int64_t i, int32_t place) {
      const int64_t query = i / num_probes_;
      if (probes_[i] >= 0) pairs_[place] = {query, segments(query)[i % num_probes_]};
    });
  }

  void ScoreMembers() {
    std::vector<ListBlock> blocks;
    for (int32_t list = 0; list < file_.num_lists; ++list) {
      if (pair_begin_[list] == pair_begin_[list + 1]) continue;
      AddBlocks(groups(list), list, &blocks);
    }
    scores_.emplace(segments_.back());
    const ListScores work = {file_.rows,    queries_.view(),    file_.offsets, blocks.data(),
                             pairs_.data(), pair_begin_.data(), scores_->get()};
    const int64_t pairs_a_block = pairs_.size() / (blocks.size() + 1) + 1;
    const int64_t cost = kGroupsOfBlock * (pairs_a_block + 1) * dim_;
    parallel_(blocks.size(), cost, [&](int64_t begin, int64_t end) {
      LARGEOUT_SIMD_DISPATCH(ScoreBlocks, work, begin, end);
    });
  }

  void WriteBest(int64_t query, int64_t k, ScoreSieve* sieve, float* scores, int64_t* ids) {
    const int64_t* begin = segments(query);
    const float* found = scores_->get() + begin[0];
    std::vector<ScoredClass> best;
    int64_t probe = 0;
    for (int32_t position : sieve->Pass(found, begin[num_probes_] - begin[0], k)) {
      while (begin[0] + position >= begin[probe + 1]) ++probe;
      const int64_t first = groups(probes(query)[probe]).first * kGroupRows;
      const int32_t id = file_.ids[first + begin[0] + position - begin[probe]];
      if (0 <= id && id < file_.rows.num_rows) best.push_back({found[position], id});
    }
    KeepBest(k, &best);
    const int64_t size = best.size();
    for (int64_t i = 0; i < k; ++i) {
      scores[i] = i < size ? best[i].score : -std::numeric_limits<float>::infinity();
      ids[i] = i < size ? best[i].id : -1;
    }
  }

  const InvertedFile& file_;
  const Features features_;
  const int64_t dim_;
  const int64_t num_probes_;
  const int64_t enough_members_;
  const ParallelFor& parallel_;
  const QueryCodes queries_;
  std::vector<int32_t> probes_;    // [batch, num_probes], -1 for padding
  std::vector<int64_t> segments_;  // [batch, num_probes + 1], where their scores start
  std::vector<int64_t> pair_begin_;
  std::vector<QueryOfList> pairs_;
  std::optional<AlignedFloats> scores_;
};

// The number of queries whose scores fit into the allowed memory.
int64_t QueriesAtOnce(const InvertedFile& file, int64_t num_probes) {
  int64_t largest = 0;
  for (int64_t l = 0; l < file.num_lists; ++l) {
    largest = std::max<int64_t>(largest, file.offsets[l + 1] - file.offsets[l]);
  }
  const int64_t probes = std::min(num_probes, file.num_lists);
  // The list that reaches the required number of members is searched completely.
  const int64_t most = std::min(probes * largest, EnoughMembers(file, probes) + largest);
  const int64_t members = std::min(file.rows.num_rows, most) + 2 * probes * kGroupRows;
  return std::clamp<int64_t>(kMostScores / members, 1, kMostQueries);
}

}  // namespace

void SearchLists(const InvertedFile& file, const Features& features, int64_t dim,
                 int64_t num_probes, int64_t k, const ParallelFor& parallel, float* scores,
                 int64_t* ids) {
  std::fill_n(scores, features.batch * k, -std::numeric_limits<float>::infinity());
  std::fill_n(ids, features.batch * k, int64_t{-1});
  if (file.offsets[file.num_lists] == 0) return;
  const int64_t step = QueriesAtOnce(file, num_probes);
  for (int64_t first = 0; first < features.batch; first += step) {
    const Features some = {features.data + first * dim, std::min(step, features.batch - first)};
    Search(file, some, dim, num_probes, parallel).Run(k, scores + first * k, ids + first * k);
  }
}

}  // namespace largeout
