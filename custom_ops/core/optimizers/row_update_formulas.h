// The optimizer steps of row_update_rules.h for one element or a vector of elements. Floats is
// float or a vector type of the compiler; root(x) is its square root. No std templates here:
// see simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_ROW_UPDATE_FORMULAS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_ROW_UPDATE_FORMULAS_H_

#include "custom_ops/core/optimizers/row_update_rules.h"

namespace largeout {

// decay_1, decay_2: the factors of m and v for the steps that skipped the row; gain_1 = 1 -
// beta_1, gain_2 = 1 - beta_2. *m does not change without a momentum slot.
template <class Floats, class Root>
inline void AdamFormula(const AdamArguments& args, Floats decay_1, Floats decay_2,
                        Floats gain_1, Floats gain_2, const Root& root, Floats gradient,
                        Floats* w, Floats* m, Floats* v) {
  Floats mean = gradient;
  if (args.momentum != nullptr) {
    *m = decay_1 * *m;
    *m += (gradient - *m) * gain_1;
    mean = *m;
  }
  *v = decay_2 * *v;
  *v += (gradient * gradient - *v) * gain_2;
  *w -= *w * args.weight_decay;
  *w -= mean * args.step_size / (root(*v) + args.epsilon);
}

template <class Floats, class Root>
inline void AdagradFormula(const AdagradArguments& args, const Root& root, Floats gradient,
                           Floats* w, Floats* a) {
  *a += gradient * gradient;
  *w -= *w * args.weight_decay;
  *w -= args.learning_rate * gradient / root(*a + args.epsilon);
}

// scale = learning_rate / sqrt(a + epsilon), one number per row.
template <class Floats>
inline void RowwiseAdagradFormula(const RowwiseAdagradArguments& args, Floats scale,
                                  Floats gradient, Floats* w) {
  *w -= *w * args.weight_decay;
  *w -= scale * gradient;
}

// *m does not change without a momentum slot.
template <class Floats>
inline void MomentumFormula(const MomentumArguments& args, Floats gradient, Floats* w,
                            Floats* m) {
  Floats change = gradient * -args.learning_rate;
  if (args.momentum != nullptr) {
    *m = *m * args.decay + change;
    change = args.nesterov ? *m * args.decay + change : *m;
  }
  *w -= *w * args.weight_decay;
  *w += change;
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_ROW_UPDATE_FORMULAS_H_
