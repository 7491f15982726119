#include "custom_ops/cuda/best_lists.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kWaiting = 64;
constexpr int kTogether = kWaiting / 2;  // entries of a row between two calls of MakeRoom

using Entries = std::vector<ScoredClass>;

// Offers what each row has, kTogether at a time.
struct OfferBody {
  const std::vector<Entries>* offered;
  int rows;
  int64_t k;
  ScoreKey* area;
  std::vector<Entries>* found;

  template <class Block>
  void operator()(const Block& block, char* shared) const {
    const BestLists<Block, kWaiting> best(block, rows, offered->size(), k, area, shared);
    size_t most = 0;
    for (const Entries& entries : *offered) most = std::max(most, entries.size());
    for (size_t first = 0; first < most; first += kTogether) {
      best.MakeRoom();
      block.ForEachThread([&](int thread) {
        for (size_t i = first + thread; i < first + kTogether; i += block.size()) {
          for (size_t row = 0; row < offered->size(); ++row) Offer(row, i, best);
        }
      });
    }
    best.Finish();
    for (int row = 0; row < rows; ++row) {
      Entries entries(k);
      std::transform(best.list(row), best.list(row) + k, entries.begin(), EntryOf);
      found->push_back(entries);
      const auto filled = [](const ScoredClass& entry) { return entry.id != kNoId; };
      EXPECT_EQ(best.size(row), std::count_if(entries.begin(), entries.end(), filled));
      const bool is_used = row < static_cast<int>(offered->size());
      EXPECT_EQ(best.limit(row), is_used ? entries[k - 1].score : kInfinity);
    }
  }

  template <class Lists>
  void Offer(size_t row, size_t i, const Lists& best) const {
    const Entries& entries = (*offered)[row];
    if (i >= entries.size() || !(entries[i].score > -kInfinity)) return;
    const int at = static_cast<int>(row);
    if (entries[i].score >= best.limit(at)) best.Push(at, entries[i]);
  }
};

Entries BestOf(Entries entries, int64_t k) {
  entries.erase(std::remove_if(entries.begin(), entries.end(),
                               [](const ScoredClass& e) { return !(e.score > -kInfinity); }),
                entries.end());
  std::sort(entries.begin(), entries.end(), [](const ScoredClass& a, const ScoredClass& b) {
    return a.score > b.score || (a.score == b.score && a.id < b.id);
  });
  entries.resize(k, {-kInfinity, kNoId});
  return entries;
}

void ExpectBest(const std::vector<Entries>& offered, int64_t k) {
  const int rows = static_cast<int>(offered.size()) + 2;
  for (const int threads : {1, 24, 96}) {
    std::vector<ScoreKey> area(rows * (k + kWaiting), 12345);
    std::vector<Entries> found;
    RunBlocks(1, threads, BestListsSharedBytes(rows, k, kWaiting),
              OfferBody{&offered, rows, k, area.data(), &found});
    for (int row = 0; row < rows; ++row) {
      const bool is_used = row < static_cast<int>(offered.size());
      const Entries expected = BestOf(is_used ? offered[row] : Entries(), k);
      for (int64_t i = 0; i < k; ++i) {
        EXPECT_EQ(found[row][i].id, expected[i].id);
        EXPECT_EQ(found[row][i].score, expected[i].score);
      }
    }
  }
}

// Ids in any order; scores by `score` of a random number below 2^16.
template <class Score>
Entries Shuffled(int64_t count, uint32_t seed, const Score& score) {
  std::mt19937 random(seed);
  Entries entries(count);
  for (int64_t i = 0; i < count; ++i) {
    entries[i] = {score(random() & 0xffffu), static_cast<int32_t>(i)};
  }
  std::shuffle(entries.begin(), entries.end(), random);
  return entries;
}

TEST(BestListsKeepTheBestOfAnyNumberOfEntries) {
  for (const int64_t k : {1, 5, 32, 100, 300}) {
    std::vector<Entries> offered;
    for (const int64_t count : {0, 1, 2, 31, 32, 33, 63, 64, 65, 100, 777}) {
      offered.push_back(Shuffled(count, count, [](uint32_t n) { return n * 0.5f - 1000.0f; }));
    }
    ExpectBest(offered, k);
  }
}

TEST(BestListsHaveRoomWhereFewWaitBeforeMany) {
  const auto any = [](uint32_t n) { return static_cast<float>(n); };
  std::vector<Entries> offered;
  for (int num_first = 0; num_first <= kTogether; ++num_first) {
    offered.push_back(Shuffled(3 * kTogether, num_first, any));
    // Of the first ones that come together all but so many are nothing to keep.
    for (int i = num_first; i < kTogether; ++i) offered.back()[i].score = -kInfinity;
  }
  for (const int64_t k : {1, 200}) ExpectBest(offered, k);
}

TEST(BestListsTakeLowerIdsOfEqualScores) {
  const auto few = [](uint32_t n) { return static_cast<float>(n % 3) - 1.0f; };
  const auto one = [](uint32_t) { return -7.0f; };
  for (const int64_t k : {3, 40, 200}) {
    ExpectBest({Shuffled(500, 1, few), Shuffled(130, 2, few), Shuffled(500, 3, one)}, k);
  }
}

TEST(BestListsTakeRisingAndFallingScores) {
  Entries rising, falling;
  for (int32_t i = 0; i < 400; ++i) {
    rising.push_back({static_cast<float>(i), i});
    falling.push_back({static_cast<float>(-i), i});
  }
  ExpectBest({rising, falling}, 70);
}

TEST(BestListsOrderNumbersThatAreNotOrdinary) {
  const float kLeast = std::numeric_limits<float>::denorm_min();
  const float kMost = std::numeric_limits<float>::max();
  const std::vector<float> numbers = {0.0f,      -0.0f,      kLeast,       -kLeast,
                                      1e-30f,    -1e-30f,    kMost,        -kMost,
                                      kInfinity, -kInfinity, std::nanf("")};
  const auto pick = [&](uint32_t n) { return numbers[n % numbers.size()]; };
  for (const int64_t k : {10, 600}) {
    ExpectBest({Shuffled(500, 1, pick), Shuffled(40, 2, pick)}, k);
  }
}

TEST(BestListsKeepEntriesThatCameTwice) {
  Entries twice = Shuffled(90, 5, [](uint32_t n) { return static_cast<float>(n % 5); });
  twice.insert(twice.end(), twice.begin(), twice.begin() + 90);
  for (const int64_t k : {20, 150, 200}) ExpectBest({twice, Entries(300, {1.0f, 3})}, k);
}

TEST(ScoreKeysRiseWithTheScoreAndFallWithTheId) {
  const float kMost = std::numeric_limits<float>::max();
  const std::vector<ScoredClass> falling = {
      {kInfinity, 0}, {kMost, 9}, {1.0f, 2},      {1.0f, 3},   {0.0f, 1},          {-0.0f, 2},
      {-1e-30f, 0},   {-2.0f, 0}, {-2.0f, kNoId}, {-kMost, 0}, {-kInfinity, kNoId}};
  for (size_t i = 0; i < falling.size(); ++i) {
    const ScoredClass entry = EntryOf(KeyOf(falling[i]));
    EXPECT_EQ(entry.id, falling[i].id);
    EXPECT_EQ(entry.score, falling[i].score);
    EXPECT_TRUE(KeyOf(falling[i]) > (i + 1 < falling.size() ? KeyOf(falling[i + 1]) : kNoKey));
  }
  EXPECT_TRUE(!std::signbit(EntryOf(KeyOf({-0.0f, 1})).score));
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
