#include "custom_ops/core/lsh/uniform_fill.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace largeout {
namespace {

// Takes the remaining classes in random order: a Fisher-Yates shuffle that stops after `count`.
int64_t ShuffleTheRest(int64_t num_classes, int64_t count, const QueryDraws& draws, MetIds* met,
                       int64_t* ids) {
  std::vector<int32_t> rest;
  for (int64_t id = 0; id < num_classes; ++id) {
    if (met->Insert(static_cast<int32_t>(id))) rest.push_back(static_cast<int32_t>(id));
  }
  const int64_t size = static_cast<int64_t>(rest.size());
  const int64_t written = std::min(count, size);
  for (int64_t i = 0; i < written; ++i) {
    const uint64_t bits = draws(QueryDraws::kFirstFillDraw + i).first;
    std::swap(rest[i], rest[i + ScaleBits(bits, size - i)]);
    ids[i] = rest[i];
  }
  std::fill(ids + written, ids + count, -1);
  return written;
}

}  // namespace

int64_t FillUniformly(int64_t num_classes, int64_t num_met, int64_t count,
                      const QueryDraws& draws, MetIds* met, int64_t* ids) {
  if (count <= 0) return 0;
  if (num_classes < 2 * (num_met + count)) {
    return ShuffleTheRest(num_classes, count, draws, met, ids);
  }
  int64_t draw = QueryDraws::kFirstFillDraw;
  for (int64_t i = 0; i < count;) {  // a draw is new with probability 1/2 or more
    const int64_t id = ScaleBits(draws(draw++).first, num_classes);
    if (met->Insert(static_cast<int32_t>(id))) ids[i++] = id;
  }
  return count;
}

}  // namespace largeout
