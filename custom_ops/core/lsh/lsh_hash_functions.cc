#include "custom_ops/core/lsh/lsh_hash_functions.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace largeout {
namespace {

int32_t BitsOf(float number) {
  int32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}

float FloatOf(int32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

void MakeProjections(const HashFamily& family, PhiloxSeed seed, int32_t* functions) {
  const int64_t size = HashFunctionsSize(family), padded = PaddedDim(family);
  for (int64_t i = 0; i < size; ++i) {
    functions[i] = BitsOf(BitsOfDraw(seed, i).first & 1 ? 1.0f : -1.0f);
  }
  for (int64_t i = 0; i < padded / 2; ++i) {
    constexpr double kTwoPi = 6.283185307179586;
    const double angle = std::ldexp(kTwoPi * (BitsOfDraw(seed, size + i).first >> 11), -53);
    functions[padded + i] = BitsOf(static_cast<float>(std::cos(angle)));
    functions[padded + padded / 2 + i] = BitsOf(static_cast<float>(std::sin(angle)));
  }
}

// Takes coordinates from a permutation, one bin after the other. WTA uses only the first bin of
// each permutation, DWTA all full bins.
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

bool HashFamilyIsValid(const HashFamily& family) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  const int bin = family.bin_size;
  return family.dim >= 1 && family.dim < kLimit && family.num_hashes >= 1 &&
         family.num_tables >= 1 && bin >= 2 && bin <= kMaxBinSize && (bin & (bin - 1)) == 0 &&
         family.bits >= 1 && family.bits <= kMaxHashBits && NumHashValues(family) < kLimit &&
         HashFunctionsSize(family) < kLimit;
}

int64_t HashFunctionsSize(const HashFamily& family) {
  return family.kind == HashKind::kSimHash ? (2 + NumBlocks(family)) * PaddedDim(family)
                                           : NumHashValues(family) * BinWidth(family);
}

void MakeHashFunctions(const HashFamily& family, PhiloxSeed seed, int32_t* functions) {
  if (family.kind == HashKind::kSimHash) {
    MakeProjections(family, seed, functions);
  } else {
    MakeBins(family, seed, functions);
  }
}

bool HashFunctionsAreValid(const HashFamily& family) {
  const int32_t* end = family.functions + HashFunctionsSize(family);
  return std::all_of(family.functions, end, [&](int32_t function) {
    return family.kind == HashKind::kSimHash ? std::isfinite(FloatOf(function))
                                             : function >= 0 && function < family.dim;
  });
}

}  // namespace largeout
