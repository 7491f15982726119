#include "custom_ops/core/optimizers/dense_adam_simd.h"

#include "custom_ops/core/base/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// A product that is then added. It prevents the compiler from fusing both operations.
inline Floats Rounded(Floats product) {
#if defined(__SSE2__)
  asm("" : "+x"(product));
#elif defined(__aarch64__)
  asm("" : "+w"(product));
#endif
  return product;
}

struct Element {
  Floats w, m, v;
};

inline Element Step(const DenseAdamArguments& args, Floats g, Element old) {
  const Floats m = old.m + Rounded((g - old.m) * args.gain_1);
  const Floats v = old.v + Rounded((Rounded(g * g) - old.v) * args.gain_2);
  return {old.w - m * args.step_size / (Sqrt(v) + args.epsilon), m, v};
}

}  // namespace

void DenseAdam(const DenseAdamArguments& args, int64_t begin, int64_t end) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    const Element now =
        Step(args, Load(args.gradient + i),
             {Load(args.variable + i), Load(args.momentum + i), Load(args.velocity + i)});
    Store(now.m, args.momentum + i);
    Store(now.v, args.velocity + i);
    Store(now.w, args.variable + i);
  }
  if (const int64_t count = end - i; count > 0) {
    const Element now =
        Step(args, LoadPart(args.gradient + i, count),
             {LoadPart(args.variable + i, count), LoadPart(args.momentum + i, count),
              LoadPart(args.velocity + i, count)});
    StorePart(now.m, count, args.momentum + i);
    StorePart(now.v, count, args.velocity + i);
    StorePart(now.w, count, args.variable + i);
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
