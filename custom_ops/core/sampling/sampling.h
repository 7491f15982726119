// Draws of classes from a fixed distribution, with and without replacement.
//
// A distribution places the classes in the order of their ids along a line of integers: class c
// occupies [Cumulative(c), Cumulative(c + 1)), and a stratum is `stratum()` integers long. With
// integers every probability below is exact: the reported expected count is exactly that of the
// draws.
//
// A distribution has
//   int64_t num_classes()
//   int64_t stratum()
//   int64_t Cumulative(int64_t c)   0 <= c <= num_classes; increasing from 0
//   int64_t Find(int64_t x)         the class that occupies x
//   kCyclesPerFind                  the cost of Find
//
// With replacement, the line is one stratum, and each draw picks a point of it.
//
// Without replacement, the line is num_sampled strata, no class is longer than a stratum, and
// class c must be in the sample with probability
//   pi_c = (Cumulative(c + 1) - Cumulative(c)) / stratum.
// Deville's systematic sampling achieves exactly that in one walk. It is the ordered pivotal
// method of Deville and Tille (Chauvet 2012, "On a characterization of ordered pivotal
// sampling"). In units of a stratum, let class k straddle the end of stratum i, with a of its
// length before the end and b after it. Let h be the jumper, the class that crossed the
// previous end, with length b'. Stratum i then contains h (b'), the classes inside it, and a of
// k:
//   1. f is picked among h and the classes inside with probabilities proportional to their
//      lengths, which sum to 1 - a. So f represents probability 1 - a.
//   2. f and k fight: with probability a / (1 - b) k is selected and f jumps over the end,
//      else f is selected and k jumps. Either jumper has length b.
// P(k) = a / (1 - b) + (1 - a / (1 - b)) b = a + b: a jumper of length b is selected later with
// probability b, because it is picked with b / (1 - a'), and the picked class represents 1 -
// a'. Ids are distinct and their number is fixed. If a class starts exactly at the end of the
// stratum, a = 0 and the class jumps.
//
// Neighbours exclude each other (the sample is stratified by id, which lowers the variance of
// sums over it). Therefore the walk starts at a random class of the ring, so that every pair of
// classes can occur together.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_SAMPLING_H_
#define LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_SAMPLING_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/base/philox.h"

namespace largeout {

// The cost of a draw without its search, mostly random bits. With a distribution in closed
// form, a second thread pays only for thousands of draws.
inline constexpr int64_t kCyclesPerDraw = 40;

// Draw i. REQUIRES: Cumulative(num_classes) == stratum().
template <class Distribution>
int64_t DrawOne(const Distribution& distribution, PhiloxSeed seed, int64_t i) {
  return distribution.Find(ScaleBits(BitsOfDraw(seed, i).first, distribution.stratum()));
}

// ids[i] for i < num_sampled: independent draws.
// REQUIRES: Cumulative(num_classes) == stratum().
template <class Distribution>
void SampleWithReplacement(const Distribution& distribution, int64_t num_sampled,
                           PhiloxSeed seed, const ParallelFor& parallel_for, int64_t* ids) {
  constexpr int64_t kCycles = kCyclesPerDraw + Distribution::kCyclesPerFind;
  parallel_for(num_sampled, kCycles, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ids[i] = DrawOne(distribution, seed, i);
  });
}

// The ring of strata, starting at the first point of class `start`.
template <class Distribution>
class StrataWalk {
 public:
  // The state of a stratum before the fights.
  struct Stratum {
    int64_t inside;     // the class picked inside, or kJumper
    int64_t straddler;  // the class that straddles its end: k
    int64_t before;     // a
    int64_t after;      // b
    uint64_t fight;     // random bits
  };
  static constexpr int64_t kJumper = -1;

  // The class that is sampled for a stratum, and the class that jumps over its end. kJumper is
  // the class that crossed the previous end.
  struct Outcome {
    int64_t selected;
    int64_t next;
  };

  StrataWalk(const Distribution& distribution, int64_t num_strata, PhiloxSeed seed)
      : distribution_(distribution),
        length_(num_strata * distribution.stratum()),
        seed_(seed),
        start_(distribution.Find(ScaleBits(BitsOfDraw(seed, kStartDraw).first, length_))),
        rotation_(Start(start_)) {}

  // The class that jumps into stratum 0, where it has its full length.
  int64_t start() const { return start_; }

  // Fills strata[i] for i in [begin, end).
  void Pick(int64_t begin, int64_t end, Stratum* strata) const {
    int64_t jumper_length = JumperLength(begin);
    for (int64_t i = begin; i < end; ++i) {
      strata[i] = PickIn(i, jumper_length);
      jumper_length = strata[i].after;
    }
  }

  // The remaining length of the jumper in stratum i.
  int64_t JumperLength(int64_t i) const { return Straddle(i).after; }

  Stratum PickIn(int64_t i, int64_t jumper_length) const {
    Stratum stratum = Straddle(i + 1);
    const DrawBits bits = BitsOfDraw(seed_, i);
    const int64_t x = ScaleBits(bits.first, distribution_.stratum() - stratum.before);
    if (x >= jumper_length) {
      stratum.inside = distribution_.Find(OnRing(i * distribution_.stratum() + x));
    }
    stratum.fight = bits.second;
    return stratum;
  }

  Outcome Fight(const Stratum& stratum) const {
    const bool straddler_wins =
        ScaleBits(stratum.fight, distribution_.stratum() - stratum.after) < stratum.before;
    if (straddler_wins) return {stratum.straddler, stratum.inside};
    return {stratum.inside, stratum.straddler};
  }

 private:
  static constexpr uint64_t kStartDraw = ~uint64_t{0};

  // REQUIRES: 0 <= x <= length_, so that the sum stays below 2^63.
  int64_t OnRing(int64_t x) const {
    const int64_t sum = x + rotation_;
    return sum < length_ ? sum : sum - length_;
  }

  // The class that straddles the start of stratum i. Nothing is picked yet.
  Stratum Straddle(int64_t i) const {
    const int64_t x = OnRing(i * distribution_.stratum());
    const int64_t c = distribution_.Find(x);
    return {kJumper, c, Share(x - Start(c)), Share(Start(c + 1) - x), 0};
  }

  // The start of class c on the line, and a length within one stratum. The limits prevent
  // overflow in damaged tables, whatever they contain.
  int64_t Start(int64_t c) const {
    return std::clamp<int64_t>(distribution_.Cumulative(c), 0, length_);
  }
  int64_t Share(int64_t length) const {
    return std::clamp<int64_t>(length, 0, distribution_.stratum());
  }

  const Distribution& distribution_;
  const int64_t length_;
  const PhiloxSeed seed_;
  const int64_t start_;
  const int64_t rotation_;
};

// ids[i] for i < num_sampled: distinct ids that include class c with probability pi_c.
// REQUIRES: Cumulative(num_classes) == num_sampled * stratum() <= 2^62; no class is longer than
// a stratum.
template <class Distribution>
void SampleWithoutReplacement(const Distribution& distribution, int64_t num_sampled,
                              PhiloxSeed seed, const ParallelFor& parallel_for, int64_t* ids) {
  using Walk = StrataWalk<Distribution>;
  constexpr int64_t kCycles = kCyclesPerDraw + 2 * Distribution::kCyclesPerFind;
  const Walk walk(distribution, num_sampled, seed);
  std::vector<typename Walk::Stratum> strata(num_sampled);
  parallel_for(num_sampled, kCycles,
               [&](int64_t begin, int64_t end) { walk.Pick(begin, end, strata.data()); });
  int64_t jumper = walk.start();
  for (int64_t i = 0; i < num_sampled; ++i) {
    const auto outcome = walk.Fight(strata[i]);
    ids[i] = outcome.selected == Walk::kJumper ? jumper : outcome.selected;
    if (outcome.next != Walk::kJumper) jumper = outcome.next;
  }
}

// The length of class c in strata: its expected count in one draw with replacement, or its
// inclusion probability without.
template <class Distribution>
float LengthInStrata(const Distribution& distribution, int64_t c) {
  // Unsigned, because a damaged table may contain any numbers.
  const uint64_t end = distribution.Cumulative(c + 1), start = distribution.Cumulative(c);
  const auto length = static_cast<int64_t>(end - start);
  return static_cast<float>(static_cast<double>(length) / distribution.stratum());
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_SAMPLING_H_
