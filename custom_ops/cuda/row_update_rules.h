// The update of one element of a row in row_update_body.h, for each optimizer.
//
// All rules have this form. Load() reads the hyperparameters. If StartsRows(), one thread per
// row calls Start(row, mean square of the gradient), which returns two numbers for the row;
// otherwise they are Defaults(). For each element row * dim + column, Read(element) returns the
// values that a step changes, Step(numbers, gradient, values) changes them, and Write(values,
// element) stores them. A thread reads several elements before it writes one.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_RULES_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_RULES_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/core/optimizers/row_update_formulas.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/row_update.h"

namespace largeout {
namespace cuda {

struct Root {
  LARGEOUT_HOST_DEVICE float operator()(float x) const { return sqrtf(x); }
};

struct RowNumbers {
  float first, second;
};

struct AdamRule {
  static constexpr bool kNeedsMeanSquare = false;
  AdamStep at;
  AdamArguments args;
  float gain_1, gain_2;

  LARGEOUT_DEVICE void Load() {
    const int64_t step = at.last_step == nullptr ? 0 : *at.step;
    args = {at.variable,   at.momentum, at.velocity, at.last_step, step,
            *at.step_size, *at.beta_1,  *at.beta_2,  *at.epsilon,  *at.weight_decay};
    gain_1 = static_cast<float>(1 - args.beta_1);
    gain_2 = static_cast<float>(1 - args.beta_2);
  }

  LARGEOUT_DEVICE bool StartsRows() const { return args.last_step != nullptr; }
  LARGEOUT_DEVICE RowNumbers Defaults() const { return {1, 1}; }

  LARGEOUT_DEVICE RowNumbers Start(int64_t row, float) const {
    const int64_t gap = args.step - args.last_step[row] - 1;
    args.last_step[row] = args.step;
    if (gap <= 0) return {1, 1};
    return {static_cast<float>(exp(gap * log(args.beta_1))),
            static_cast<float>(exp(gap * log(args.beta_2)))};
  }

  struct Values {
    float w, m, v;
  };
  LARGEOUT_DEVICE Values Read(int64_t element) const {
    return {args.variable[element], args.momentum == nullptr ? 0 : args.momentum[element],
            args.velocity[element]};
  }
  LARGEOUT_DEVICE void Step(RowNumbers decay, float gradient, Values* at_element) const {
    AdamFormula(args, decay.first, decay.second, gain_1, gain_2, Root{}, gradient,
                &at_element->w, &at_element->m, &at_element->v);
  }
  LARGEOUT_DEVICE void Write(const Values& values, int64_t element) const {
    args.variable[element] = values.w;
    if (args.momentum != nullptr) args.momentum[element] = values.m;
    args.velocity[element] = values.v;
  }
};

struct AdagradRule {
  static constexpr bool kNeedsMeanSquare = false;
  AdagradStep at;
  AdagradArguments args;

  LARGEOUT_DEVICE void Load() {
    args = {at.variable, at.accumulator, *at.learning_rate, *at.epsilon, *at.weight_decay};
  }

  LARGEOUT_DEVICE bool StartsRows() const { return false; }
  LARGEOUT_DEVICE RowNumbers Defaults() const { return {0, 0}; }
  LARGEOUT_DEVICE RowNumbers Start(int64_t, float) const { return {0, 0}; }

  struct Values {
    float w, a;
  };
  LARGEOUT_DEVICE Values Read(int64_t element) const {
    return {args.variable[element], args.accumulator[element]};
  }
  LARGEOUT_DEVICE void Step(RowNumbers, float gradient, Values* at_element) const {
    AdagradFormula(args, Root{}, gradient, &at_element->w, &at_element->a);
  }
  LARGEOUT_DEVICE void Write(const Values& values, int64_t element) const {
    args.variable[element] = values.w;
    args.accumulator[element] = values.a;
  }
};

struct RowwiseAdagradRule {
  static constexpr bool kNeedsMeanSquare = true;
  RowwiseAdagradStep at;
  RowwiseAdagradArguments args;

  LARGEOUT_DEVICE void Load() {
    args = {at.variable, at.accumulator, *at.learning_rate, *at.epsilon, *at.weight_decay};
  }

  LARGEOUT_DEVICE bool StartsRows() const { return true; }
  LARGEOUT_DEVICE RowNumbers Defaults() const { return {0, 0}; }

  LARGEOUT_DEVICE RowNumbers Start(int64_t row, float mean_square) const {
    const float sum = args.accumulator[row] + mean_square;
    args.accumulator[row] = sum;
    return {args.learning_rate / Root{}(sum + args.epsilon), 0};
  }

  struct Values {
    float w;
  };
  LARGEOUT_DEVICE Values Read(int64_t element) const { return {args.variable[element]}; }
  LARGEOUT_DEVICE void Step(RowNumbers scale, float gradient, Values* at_element) const {
    RowwiseAdagradFormula(args, scale.first, gradient, &at_element->w);
  }
  LARGEOUT_DEVICE void Write(const Values& values, int64_t element) const {
    args.variable[element] = values.w;
  }
};

struct MomentumRule {
  static constexpr bool kNeedsMeanSquare = false;
  MomentumStep at;
  MomentumArguments args;

  LARGEOUT_DEVICE void Load() {
    args = {at.variable, at.momentum, *at.learning_rate,
            *at.decay,   at.nesterov, *at.weight_decay};
  }

  LARGEOUT_DEVICE bool StartsRows() const { return false; }
  LARGEOUT_DEVICE RowNumbers Defaults() const { return {0, 0}; }
  LARGEOUT_DEVICE RowNumbers Start(int64_t, float) const { return {0, 0}; }

  struct Values {
    float w, m;
  };
  LARGEOUT_DEVICE Values Read(int64_t element) const {
    return {args.variable[element], args.momentum == nullptr ? 0 : args.momentum[element]};
  }
  LARGEOUT_DEVICE void Step(RowNumbers, float gradient, Values* at_element) const {
    MomentumFormula(args, gradient, &at_element->w, &at_element->m);
  }
  LARGEOUT_DEVICE void Write(const Values& values, int64_t element) const {
    args.variable[element] = values.w;
    if (args.momentum != nullptr) args.momentum[element] = values.m;
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_RULES_H_
