// cub::DeviceRadixSort for the emulated GPU: a stable sort by the given range of bits.

#ifndef LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_
#define LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <vector>

#include "custom_ops/emulated_gpu/cub/device/temporary_storage.h"

namespace cub {

struct DeviceRadixSort {
  // REQUIRES: Key is unsigned.
  template <class Key, class Value>
  static cudaError_t SortPairs(void* storage, size_t& storage_bytes, const Key* keys,
                               Key* sorted_keys, const Value* values, Value* sorted_values,
                               int count, int begin_bit, int end_bit, cudaStream_t) {
    static_assert(std::is_unsigned_v<Key>);
    if (storage == nullptr) return AskForStorage(count, &storage_bytes);
    const int64_t key_bytes = int64_t{count} * sizeof(Key);
    const int64_t value_bytes = int64_t{count} * sizeof(Value);
    const cudaError_t status = CheckStorage(storage, storage_bytes, count,
                                            {{keys, key_bytes},
                                             {sorted_keys, key_bytes},
                                             {values, value_bytes},
                                             {sorted_values, value_bytes}});
    if (status != cudaSuccess) return status;
    const largeout::emulated_gpu::Access access;
    const std::vector<Key> old_keys(keys, keys + count);
    const std::vector<Value> old_values(values, values + count);
    SpoilStorage(storage, storage_bytes);
    const int bits = end_bit - begin_bit, all_bits = static_cast<int>(8 * sizeof(Key));
    const Key mask = bits == all_bits ? ~Key{0} : (Key{1} << bits) - 1;
    const auto digits = [&](int i) -> Key { return (old_keys[i] >> begin_bit) & mask; };
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return digits(a) < digits(b); });
    for (int i = 0; i < count; ++i) {
      sorted_keys[i] = old_keys[order[i]];
      sorted_values[i] = old_values[order[i]];
    }
    return cudaSuccess;
  }
};

}  // namespace cub

#endif  // LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_
