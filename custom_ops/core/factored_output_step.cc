#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_ops/core/dense_product.h"
#include "custom_ops/core/factored_output.h"
#include "custom_ops/core/factored_output_targets.h"
#include "custom_ops/core/finite.h"
#include "custom_ops/core/lu_factors.h"
#include "custom_ops/core/padded_matrix.h"

namespace largeout {
namespace {

// out += a b, of `depth` terms.
void Add(const Strided<double>& a, int64_t depth, const PaddedMatrix& b, PaddedMatrix* out,
         const ParallelFor& parallel) {
  AddProductInBlocks({out->rows(), depth, out->padded_width()}, a, b.data(), b.stride(),
                     out->data(), out->stride(), parallel);
}

bool RowsAreFinite(const PaddedMatrix& matrix) {
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    if (!AllFinite(matrix.row(i), matrix.width())) return false;
  }
  return true;
}

// What comes before the update of the state.
template <class Number>
class Gradient {
 public:
  Gradient(const FactoredState<Number>& state, const FactoredBatch& batch,
           const FactoredSlopes& slopes, const ParallelFor& parallel)
      : mixing_(state.width, state.width),
        by_features_(batch.batch, state.width),
        target_sums_(batch.batch) {
    PaddedMatrix targets(batch.batch, state.width);
    MultiplyTargets(state, batch, slopes.by_a, parallel, target_sums_.data(), &targets);
    for (int64_t j = 0; j < batch.batch; ++j) {
      const double twice = 2 * slopes.by_q[j], by_s = slopes.by_s[j], sum = target_sums_[j];
      const double* gram = slopes.gram_features + j * state.width;
      double* row = by_features_.row(j);
      for (int64_t k = 0; k < state.width; ++k) {
        row[k] = twice * gram[k] + by_s * state.total[k] + sum * state.offset[k];
      }
    }
    mixing_.CopyFrom(state.mixing);
    Add(targets.view(), state.width, mixing_, &by_features_, parallel);
  }

  // Copies the first `dim` numbers of each row.
  void Write(int64_t dim, double* by_features) const {
    for (int64_t j = 0; j < by_features_.rows(); ++j) {
      std::copy_n(by_features_.row(j), dim, by_features + j * dim);
    }
  }

  PaddedMatrix* mixing() { return &mixing_; }                              // U
  const PaddedMatrix& by_features() const { return by_features_; }         // (W'E)'
  const std::vector<double>& target_sums() const { return target_sums_; }  // A'1

 private:
  PaddedMatrix mixing_, by_features_;
  std::vector<double> target_sums_;
};

// The state after a step, in memory of its own until all of it is known to be finite.
template <class Number>
class Update {
 public:
  Update(const FactoredState<Number>& state, const FactoredBatch& batch,
         const FactoredSlopes& slopes, double learning_rate, const ParallelFor& parallel,
         Gradient<Number>* gradient)
      : state_(state),
        batch_(batch),
        slopes_(slopes),
        learning_rate_(learning_rate),
        parallel_(parallel),
        gradient_(*gradient),
        features_(batch.batch, state.width),
        columns_(state.width, batch.batch),
        scaled_(batch.batch, state.width),
        solved_(batch.batch, state.width),
        inverse_(state.width, state.width),
        gram_(state.width, state.width),
        sums_(2, state.width),
        targets_(batch, slopes.by_a, parallel) {
    features_.CopyFrom(batch.features);
    TransposeInto(batch.features, state.width, batch.batch, state.width, columns_.data(),
                  columns_.stride());
  }

  FactoredOutcome Compute(double min_pivot) {
    const double pivot = UpdateInverse(min_pivot);
    if (!(pivot >= min_pivot)) return {pivot, nullptr};
    UpdateMixing();
    UpdateGram();
    UpdateSums();
    const bool vectors_are_finite = UpdateVectors();
    const char* not_finite = nullptr;
    if (!vectors_are_finite) not_finite = "vectors";
    if (!RowsAreFinite(*gradient_.mixing())) not_finite = "mixing";
    if (!RowsAreFinite(inverse_)) not_finite = "inverse";
    if (!AllFinite(sums_.row(0), state_.width)) not_finite = "offset";
    if (!AllFinite(sums_.row(1), state_.width)) not_finite = "total";
    if (!GramIsFinite()) not_finite = "gram";
    return {pivot, not_finite};
  }

  // Needs no memory, and so is never left half done.
  void Write() const {
    const int64_t width = state_.width;
    for (int64_t i = 0; i < width; ++i) {
      std::copy_n(gradient_.mixing()->row(i), width, state_.mixing + i * width);
      std::copy_n(inverse_.row(i), width, state_.inverse + i * width);
      std::copy_n(gram_.row(i), i + 1, state_.gram + i * width);
      for (int64_t k = i + 1; k < width; ++k) state_.gram[i * width + k] = gram_.row(k)[i];
    }
    std::copy_n(sums_.row(0), width, state_.offset);
    std::copy_n(sums_.row(1), width, state_.total);
    for (size_t c = 0; c < targets_.classes().size(); ++c) {
      std::copy_n(vectors_.data() + c * width, width,
                  state_.vectors + targets_.classes()[c] * width);
    }
  }

 private:
  // scaled_ = row j of `rows` times factor gamma_j.
  void Scale(double factor, const double* rows, int64_t stride) {
    for (int64_t j = 0; j < batch_.batch; ++j) {
      const double scale = factor * slopes_.by_q[j];
      for (int64_t k = 0; k < state_.width; ++k) {
        scaled_.row(j)[k] = scale * rows[j * stride + k];
      }
    }
  }

  // Woodbury: with S = I - 2 eta H'H Gamma and T = S^-1 H' U^-1, which is H' times the inverse
  // of the new U, U^-1 becomes U^-1 + 2 eta H Gamma T. Returns the smallest pivot of S.
  double UpdateInverse(double min_pivot) {
    PaddedMatrix small(batch_.batch, batch_.batch);
    small.Fill(0);
    Add(features_.view(), state_.width, columns_, &small, parallel_);
    for (int64_t i = 0; i < batch_.batch; ++i) {
      for (int64_t j = 0; j < batch_.batch; ++j) {
        small.row(i)[j] =
            (i == j ? 1 : 0) - 2 * learning_rate_ * slopes_.by_q[j] * small.row(i)[j];
      }
    }
    LuFactors factors(&small);
    const double pivot = factors.Factor(min_pivot, parallel_);
    if (!(pivot >= min_pivot)) return pivot;
    inverse_.CopyFrom(state_.inverse);
    solved_.Fill(0);
    Add(features_.view(), state_.width, inverse_, &solved_, parallel_);
    factors.Solve(&solved_, parallel_);
    Scale(2 * learning_rate_, features_.data(), features_.stride());
    Add(scaled_.transposed(), batch_.batch, solved_, &inverse_, parallel_);
    return pivot;
  }

  // U <- U - 2 eta (U H) Gamma H'.
  void UpdateMixing() {
    Scale(-2 * learning_rate_, slopes_.mixed_features, state_.width);
    Add(scaled_.transposed(), batch_.batch, features_, gradient_.mixing(), parallel_);
  }

  // [batch, batch]: -eta^2 / 2 times E'E. With B = W'E - Q H Gamma, that is F + F' where
  // F = 2 B'H Gamma + (y + N/2 sigma) sigma' + A'A / 2.
  PaddedMatrix ScaledSquares() {
    const int64_t size = batch_.batch;
    const double factor = -learning_rate_ * learning_rate_ / 2;
    Scale(-1, slopes_.gram_features, state_.width);
    for (int64_t j = 0; j < size; ++j) {
      const double* by_features = gradient_.by_features().row(j);
      for (int64_t k = 0; k < state_.width; ++k) scaled_.row(j)[k] += by_features[k];
    }
    PaddedMatrix half(size, size), squares(size, size);
    half.Fill(0);
    Add(scaled_.view(), state_.width, columns_, &half, parallel_);
    for (int64_t i = 0; i < size; ++i) {
      const double rest =
          gradient_.target_sums()[i] + 0.5 * state_.num_classes * slopes_.by_s[i];
      for (int64_t j = 0; j < size; ++j) {
        const double product = 2 * half.row(i)[j] * slopes_.by_q[j];
        half.row(i)[j] = factor * (product + rest * slopes_.by_s[j]);
      }
    }
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j < size; ++j) squares.row(i)[j] = half.row(i)[j] + half.row(j)[i];
    }
    targets_.AddGram(factor, &squares);
    return squares;
  }

  // Q <- Q - L H' - H L' with L = eta W'E - eta^2/2 H E'E: one product of twice the depth, as
  // the rows of -L' stand between those of H' and those of H' again.
  void UpdateGram() {
    const int64_t size = batch_.batch;
    PaddedMatrix stack(3 * size, state_.width);
    const PaddedMatrix squares = ScaledSquares();
    gram_.CopyFrom(state_.gram);
    for (int64_t j = 0; j < size; ++j) {
      std::copy_n(features_.row(j), state_.width, stack.row(j));
      std::copy_n(features_.row(j), state_.width, stack.row(2 * size + j));
      const double* by_features = gradient_.by_features().row(j);
      for (int64_t k = 0; k < state_.width; ++k) {
        stack.row(size + j)[k] = learning_rate_ * by_features[k];
      }
    }
    AddProductInBlocks({size, size, features_.padded_width()}, squares.view(), features_.data(),
                       features_.stride(), stack.row(size), stack.stride(), parallel_);
    for (int64_t j = 0; j < size; ++j) {
      for (int64_t k = 0; k < state_.width; ++k) stack.row(size + j)[k] *= -1;
    }
    AddLowerProduct({state_.width, 2 * size, gram_.padded_width()},
                    {stack.row(size), 1, stack.stride()}, stack.data(), stack.stride(),
                    gram_.data(), gram_.stride(), parallel_);
  }

  // omega <- omega - eta H (2 Gamma H' omega + sigma),
  // w_bar <- w_bar - eta H (2 Gamma H' w_bar + N sigma + y).
  void UpdateSums() {
    const int64_t size = batch_.batch;
    std::copy_n(state_.offset, state_.width, sums_.row(0));
    std::copy_n(state_.total, state_.width, sums_.row(1));
    PaddedMatrix factors(2, size);
    factors.Fill(0);
    Add(sums_.view(), state_.width, columns_, &factors, parallel_);
    for (int64_t j = 0; j < size; ++j) {
      const double twice = 2 * slopes_.by_q[j], by_s = slopes_.by_s[j];
      const double of_total = state_.num_classes * by_s + gradient_.target_sums()[j];
      factors.row(0)[j] = -learning_rate_ * (twice * factors.row(0)[j] + by_s);
      factors.row(1)[j] = -learning_rate_ * (twice * factors.row(1)[j] + of_total);
    }
    Add(factors.view(), size, features_, &sums_, parallel_);
  }

  // V[c] <- V[c] - eta times the sum over j of A_cj T_j. Returns whether all are finite.
  bool UpdateVectors() {
    const int64_t width = state_.width;
    const int64_t num_classes = static_cast<int64_t>(targets_.classes().size());
    vectors_.resize(num_classes * width);
    parallel_(num_classes, 4 * width, [&](int64_t begin, int64_t end) {
      std::vector<double> sum(width);
      for (int64_t c = begin; c < end; ++c) {
        const Number* old = state_.vectors + targets_.classes()[c] * width;
        std::copy_n(old, width, sum.data());
        targets_.AddRowsOfClass(c, -learning_rate_, solved_, sum.data());
        std::copy_n(sum.data(), width, vectors_.data() + c * width);
      }
    });
    return AllFinite(vectors_.data(), num_classes * width);
  }

  bool GramIsFinite() const {
    for (int64_t i = 0; i < gram_.rows(); ++i) {
      if (!AllFinite(gram_.row(i), i + 1)) return false;
    }
    return true;
  }

  const FactoredState<Number>& state_;
  const FactoredBatch& batch_;
  const FactoredSlopes& slopes_;
  const double learning_rate_;
  const ParallelFor& parallel_;
  Gradient<Number>& gradient_;
  // [batch, width], but [width, batch] the columns: H', H, what Scale makes, and T.
  PaddedMatrix features_, columns_, scaled_, solved_;
  PaddedMatrix inverse_, gram_, sums_;  // of sums_, rows are omega and w_bar
  TargetSlopes targets_;
  std::vector<Number> vectors_;  // new rows of V, those of the distinct classes
};

}  // namespace

template <class Number>
void GradientByFactoredFeatures(const FactoredState<Number>& state, const FactoredBatch& batch,
                                const FactoredSlopes& slopes, const ParallelFor& parallel,
                                int64_t dim, double* by_features) {
  Gradient<Number>(state, batch, slopes, parallel).Write(dim, by_features);
}

template <class Number>
FactoredOutcome StepFactoredOutput(const FactoredState<Number>& state,
                                   const FactoredBatch& batch, const FactoredSlopes& slopes,
                                   double learning_rate, double min_pivot,
                                   const ParallelFor& parallel, int64_t dim,
                                   double* by_features) {
  Gradient<Number> gradient(state, batch, slopes, parallel);
  gradient.Write(dim, by_features);
  Update<Number> update(state, batch, slopes, learning_rate, parallel, &gradient);
  const FactoredOutcome outcome = update.Compute(min_pivot);
  if (outcome.smallest_pivot >= min_pivot && outcome.not_finite == nullptr) update.Write();
  return outcome;
}

#define LARGEOUT_INSTANTIATE(Number)                                                           \
  template void GradientByFactoredFeatures(const FactoredState<Number>&, const FactoredBatch&, \
                                           const FactoredSlopes&, const ParallelFor&, int64_t, \
                                           double*);                                           \
  template FactoredOutcome StepFactoredOutput(                                                 \
      const FactoredState<Number>&, const FactoredBatch&, const FactoredSlopes&, double,       \
      double, const ParallelFor&, int64_t, double*);
LARGEOUT_INSTANTIATE(float)
LARGEOUT_INSTANTIATE(double)
#undef LARGEOUT_INSTANTIATE

}  // namespace largeout
