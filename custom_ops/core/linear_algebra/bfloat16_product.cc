#include "custom_ops/core/linear_algebra/bfloat16_product.h"

#include "custom_ops/core/base/simd_level.h"

namespace largeout {

PairProduct ActivePairProduct() {
#if defined(__x86_64__)
  switch (ActiveSimdLevel()) {
    case SimdLevel::kAmx:
      return amx::IsPermitted() ? amx::AddPairProduct : avx512::AddPairProduct;
    case SimdLevel::kAvx512:
      return avx512::AddPairProduct;
    case SimdLevel::kAvx2:
      return avx2::AddPairProduct;
    case SimdLevel::kGeneric:
      break;
  }
#endif
  return generic::AddPairProduct;
}

}  // namespace largeout
