#include "custom_ops/core/lsh_hash_functions.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace largeout {
namespace {

constexpr int32_t kSignBit = std::numeric_limits<int32_t>::min();

void MakeSigns(int64_t size, PhiloxSeed seed, int32_t* functions) {
  for (int64_t i = 0; i < size; ++i) {
    functions[i] = BitsOfDraw(seed, i).first & 1 ? kSignBit : 0;
  }
}

// Deals coordinates from a permutation, a bin after the other. WTA takes the
// first bin of each permutation only, DWTA all full ones.
void MakeBins(const HashFamily& family, PhiloxSeed seed, int32_t* functions) {
  const int64_t width = BinWidth(family);
  const int64_t bins = family.kind == HashKind::kDwta ? family.dim / width : 1;
  std::vector<int32_t> deck(family.dim);
  std::iota(deck.begin(), deck.end(), 0);
  for (int64_t h = 0; h < NumHashValues(family); ++h) {
    for (int64_t j = 0; j < width; ++j) {
      const int64_t place = h % bins * width + j;
      const uint64_t bits = BitsOfDraw(seed, h * width + j).first;
      std::swap(deck[place], deck[place + ScaleBits(bits, family.dim - place)]);
      functions[h * width + j] = deck[place];
    }
  }
}

}  // namespace

int64_t HashFunctionsSize(const HashFamily& family) {
  return family.kind == HashKind::kSimHash ? (1 + NumSignBlocks(family)) * PaddedDim(family)
                                           : NumHashValues(family) * BinWidth(family);
}

void MakeHashFunctions(const HashFamily& family, PhiloxSeed seed, int32_t* functions) {
  if (family.kind == HashKind::kSimHash) {
    MakeSigns(HashFunctionsSize(family), seed, functions);
  } else {
    MakeBins(family, seed, functions);
  }
}

bool HashFunctionsAreValid(const HashFamily& family) {
  const int32_t* end = family.functions + HashFunctionsSize(family);
  return std::all_of(family.functions, end, [&](int32_t function) {
    return family.kind == HashKind::kSimHash ? function == 0 || function == kSignBit
                                             : function >= 0 && function < family.dim;
  });
}

}  // namespace largeout
