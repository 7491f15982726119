// Products with the tiles of AMX: 16 rows of 64 bytes each. Only these functions are compiled
// for AMX, because the rest of the library also runs on processors without it.

#include "custom_ops/core/linear_algebra/bfloat16_product.h"

#if defined(__x86_64__) && __has_include(<amxbf16intrin.h>)
#include <immintrin.h>
#include <syscall.h>
#include <unistd.h>
#define LARGEOUT_WITH_AMX __attribute__((target("amx-tile,amx-bf16")))
#endif

namespace largeout {
namespace amx {

#if defined(LARGEOUT_WITH_AMX)
namespace {

struct TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64, "the layout that the processor reads");

constexpr int kTilePairs = kPairDepth / 2;

// Multiplies 32 rows by 32 columns. Each loaded tile of a factor is used twice.
LARGEOUT_WITH_AMX void AddFourTiles(int64_t depth, PairMatrix a, PairMatrix b, float* out,
                                    int64_t out_stride) {
  const int64_t a_bytes = 4 * a.stride, b_bytes = 4 * b.stride, out_bytes = 4 * out_stride;
  float* below = out + kPairTile * out_stride;
  _tile_loadd(0, out, out_bytes);
  _tile_loadd(1, out + kPairTile, out_bytes);
  _tile_loadd(2, below, out_bytes);
  _tile_loadd(3, below + kPairTile, out_bytes);
  for (int64_t k = 0; k < depth / 2; k += kTilePairs) {
    _tile_loadd(4, a.data + k, a_bytes);
    _tile_loadd(6, b.data + k * b.stride, b_bytes);
    _tile_loadd(7, b.data + k * b.stride + kPairTile, b_bytes);
    _tile_loadd(5, a.data + kPairTile * a.stride + k, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, out_bytes);
  _tile_stored(1, out + kPairTile, out_bytes);
  _tile_stored(2, below, out_bytes);
  _tile_stored(3, below + kPairTile, out_bytes);
}

LARGEOUT_WITH_AMX void AddOneTile(int64_t depth, PairMatrix a, PairMatrix b, float* out,
                                  int64_t out_stride) {
  _tile_loadd(0, out, 4 * out_stride);
  for (int64_t k = 0; k < depth / 2; k += kTilePairs) {
    _tile_loadd(4, a.data + k, 4 * a.stride);
    _tile_loadd(6, b.data + k * b.stride, 4 * b.stride);
    _tile_dpbf16ps(0, 4, 6);
  }
  _tile_stored(0, out, 4 * out_stride);
}

}  // namespace

bool IsPermitted() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // of the Linux kernel
  static const bool permitted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return permitted;
}

LARGEOUT_WITH_AMX void AddPairProduct(const ProductSize& size, const PairMatrix& a,
                                      const PairMatrix& b, float* out, int64_t out_stride) {
  constexpr int kTwoTiles = 2 * kPairTile;
  const TileConfig config;
  _tile_loadconfig(&config);
  for (int64_t r = 0; r < size.rows; r += kTwoTiles) {
    for (int64_t j = 0; j < size.width; j += kTwoTiles) {
      const PairMatrix rows = {a.data + r * a.stride, a.stride},
                       columns = {b.data + j, b.stride};
      const bool two_below = r + kTwoTiles <= size.rows;
      const bool two_beside = j + kTwoTiles <= size.width;
      float* to = out + r * out_stride + j;
      if (two_below && two_beside) {
        AddFourTiles(size.depth, rows, columns, to, out_stride);
        continue;
      }
      AddOneTile(size.depth, rows, columns, to, out_stride);
      if (two_beside) {
        AddOneTile(size.depth, rows, {columns.data + kPairTile, b.stride}, to + kPairTile,
                   out_stride);
      }
      if (two_below) {
        AddOneTile(size.depth, {rows.data + kPairTile * a.stride, a.stride}, columns,
                   to + kPairTile * out_stride, out_stride);
      }
    }
  }
  _tile_release();
}

#else

bool IsPermitted() { return false; }

void AddPairProduct(const ProductSize&, const PairMatrix&, const PairMatrix&, float*, int64_t) {
}

#endif

}  // namespace amx
}  // namespace largeout
