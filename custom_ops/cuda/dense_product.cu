#include "custom_ops/cuda/dense_product.h"
#include "custom_ops/cuda/dense_product_body.h"
#include "custom_ops/cuda/launch.cuh"

namespace largeout {
namespace cuda {

Status Multiply(const DenseProduct& product, Stream stream) {
  const DenseProductBody body{product};
  return ForEachBlock(body.NumSquares(), DenseProductBody::kThreads,
                      DenseProductBody::kSharedBytes, body, stream);
}

}  // namespace cuda
}  // namespace largeout
