// The search of inverted_file.cu. A block processes one query.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_INVERTED_FILE_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_INVERTED_FILE_BODY_H_

#include <cstdint>

#include "custom_ops/core/inverted_file/inverted_file.h"
#include "custom_ops/cuda/best_lists.h"
#include "custom_ops/cuda/code_rows.h"
#include "custom_ops/cuda/inverted_file.h"

namespace largeout {
namespace cuda {

inline constexpr int kSearchThreads = 256;
inline constexpr int kSearchWaiting = 2 * kSearchThreads;
inline constexpr int kMeansTogether = 32;  // group_rows of the means: one per thread of a warp

// The scratch of one block: the best lists; where the members of each list start if all members
// are numbered in one sequence; and the best members.
struct SearchMemory {
  int64_t num_probes, k;

  LARGEOUT_HOST_DEVICE int64_t probe_bytes() const {
    return (num_probes + kSearchWaiting) * static_cast<int64_t>(sizeof(ScoreKey));
  }
  LARGEOUT_HOST_DEVICE int64_t start_bytes() const {
    return (num_probes + 1) * static_cast<int64_t>(sizeof(int64_t));
  }
  LARGEOUT_HOST_DEVICE int64_t Bytes() const {
    return probe_bytes() + start_bytes() +
           (k + kSearchWaiting) * static_cast<int64_t>(sizeof(ScoreKey));
  }
};

struct SearchBody {
  InvertedFile file;
  CodeRows means;
  CodeRows queries;
  int64_t batch;
  SearchMemory memory;
  char* scratch;  // memory.Bytes() per block
  float* scores;  // [batch, k]
  int64_t* ids;   // [batch, k]

  static int64_t SharedBytes(const SearchMemory& memory) {
    const int64_t most = memory.k > memory.num_probes ? memory.k : memory.num_probes;
    return BestListsSharedBytes(1, most, kSearchWaiting) +
           static_cast<int64_t>(sizeof(int64_t));
  }

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    // The number of lists to search is stored before the shared memory of BestLists.
    int64_t* const num_lists = reinterpret_cast<int64_t*>(shared);
    for (int64_t query = block.index(); query < batch; query += block.num_blocks()) {
      char* const own = scratch + block.index() * memory.Bytes();
      int64_t* const starts = reinterpret_cast<int64_t*>(own + memory.probe_bytes());
      const ScoreKey* const lists = ChooseLists(block, query, own, shared + sizeof(int64_t));
      block.ForEachThread([&](int thread) {
        if (thread == 0) *num_lists = FindStarts(lists, starts);
      });
      SearchMembers(block, query, {lists, starts, *num_lists}, own, shared + sizeof(int64_t));
    }
  }

 private:
  // The members of the searched lists, in one sequence: list i has members starts[i] to
  // starts[i + 1] - 1.
  struct Members {
    const ScoreKey* lists;
    const int64_t* starts;
    int64_t num_lists;

    LARGEOUT_DEVICE int64_t size() const { return starts[num_lists]; }
  };

  LARGEOUT_DEVICE int64_t SizeOf(int64_t list) const {
    const int64_t begin = file.offsets[list], end = file.offsets[list + 1];
    return begin < 0 || end < begin || end > file.rows.num_rows ? 0 : end - begin;
  }

  // Writes the num_probes best lists at the start of `own`, best first. kNoId follows the last
  // one.
  template <class Block>
  LARGEOUT_DEVICE const ScoreKey* ChooseLists(const Block& block, int64_t query, char* own,
                                              char* shared) const {
    const BestLists<Block, kSearchWaiting> best(block, 1, 1, memory.num_probes,
                                                reinterpret_cast<ScoreKey*>(own), shared);
    for (int64_t first = 0; first < file.num_lists; first += kSearchThreads) {
      best.MakeRoom();
      block.ForEachThread([&](int thread) {
        const int64_t list = first + thread;
        if (list < file.num_lists) Offer(MeanScore(query, list), list, best);
      });
    }
    best.Finish();
    return best.list(0);
  }

  LARGEOUT_DEVICE float MeanScore(int64_t query, int64_t list) const {
    const float bias = file.mean_bias[list], scale = means.scales[list];
    if (scale != scale || bias - bias != 0.0f) return MinusInfinity();  // not finite
    const int64_t group = list / kMeansTogether, lane = list % kMeansTogether;
    const int8_t* const codes =
        means.codes + group * kMeansTogether * means.width + lane * kCodesTogether;
    const int32_t sum = ProductsWithQuery<kMeansTogether>(query, codes, 0);
    return MultiplyAdd(static_cast<float>(sum), scale * queries.scales[query], bias);
  }

  // `codes` are those of a row in a group of kTogether rows. Each query is a group of one row.
  template <int kTogether>
  LARGEOUT_DEVICE int32_t ProductsWithQuery(int64_t query, const void* codes,
                                            uint32_t turned) const {
    return SumOfProducts<kTogether * kCodesTogether>(
        queries.codes + query * queries.width, static_cast<int>(queries.width), codes, turned);
  }

  // Entries with equal scores may come by decreasing id, so scores that equal the limit are
  // pushed too.
  template <class Lists>
  LARGEOUT_DEVICE void Offer(float score, int64_t id, const Lists& best) const {
    if (score > MinusInfinity() && score >= best.limit(0)) {
      best.Push(0, {score, static_cast<int32_t>(id)});
    }
  }

  // Returns the number of lists to search. It stops once the lists have as many members as
  // num_probes lists of mean size.
  LARGEOUT_DEVICE int64_t FindStarts(const ScoreKey* lists, int64_t* starts) const {
    const int64_t members = file.offsets[file.num_lists];
    const int64_t enough =
        memory.num_probes * ((members + file.num_lists - 1) / file.num_lists);
    int64_t i = 0;
    starts[0] = 0;
    for (; i < memory.num_probes && starts[i] < enough; ++i) {
      const int32_t list = EntryOf(lists[i]).id;
      if (list == kNoId) break;
      starts[i + 1] = starts[i] + SizeOf(list);
    }
    return i;
  }

  template <class Block>
  LARGEOUT_DEVICE void SearchMembers(const Block& block, int64_t query, const Members& members,
                                     char* own, char* shared) const {
    ScoreKey* const area =
        reinterpret_cast<ScoreKey*>(own + memory.probe_bytes() + memory.start_bytes());
    const BestLists<Block, kSearchWaiting> best(block, 1, 1, memory.k, area, shared);
    for (int64_t first = 0; first < members.size(); first += kSearchThreads) {
      best.MakeRoom();
      block.ForEachThread([&](int thread) {
        if (first + thread >= members.size()) return;
        const int64_t row = RowOf(members, first + thread);
        const int64_t id = file.ids[row];
        if (id >= 0 && id < file.rows.num_rows) Offer(RowScore(query, row), id, best);
      });
    }
    best.Finish();
    block.ForEachThread([&](int thread) {
      for (int64_t i = thread; i < memory.k; i += block.size()) {
        const ScoredClass found = EntryOf(best.list(0)[i]);
        scores[query * memory.k + i] = found.score;
        ids[query * memory.k + i] = found.id == kNoId ? -1 : found.id;
      }
    });
  }

  // The packed row of a member.
  LARGEOUT_DEVICE int64_t RowOf(const Members& members, int64_t number) const {
    int64_t low = 0, high = members.num_lists;  // starts[low] <= number < starts[high]
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (members.starts[middle] <= number ? low : high) = middle;
    }
    return file.offsets[EntryOf(members.lists[low]).id] + number - members.starts[low];
  }

  LARGEOUT_DEVICE float RowScore(int64_t query, int64_t row) const {
    const int64_t group = row / kGroupRows, lane = row % kGroupRows;
    const uint8_t* codes =
        file.rows.codes + group * kGroupRows * file.rows.width + lane * kCodesTogether;
    // A code is its number plus 128. Flipping its highest bit gives the number as a signed
    // byte.
    const int32_t sum = ProductsWithQuery<kGroupRows>(query, codes, 0x80808080u);
    const float* const scales = file.rows.scales + group * 2 * kGroupRows + lane;
    return MultiplyAdd(static_cast<float>(sum), scales[0] * queries.scales[query],
                       scales[kGroupRows]);
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_INVERTED_FILE_BODY_H_
