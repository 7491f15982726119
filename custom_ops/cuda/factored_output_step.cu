#include "custom_ops/cuda/dense_product.h"
#include "custom_ops/cuda/factored_output.h"
#include "custom_ops/cuda/factored_output_folds.h"
#include "custom_ops/cuda/factored_output_step_body.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/lu_factors.h"

namespace largeout {
namespace cuda {
namespace {

constexpr int64_t kBytesOfDouble = sizeof(double);

// Views of an array [rows, width]: as it is, and transposed.
Strided<double> AsIs(const double* data, int64_t width) { return {data, width, 1}; }
Strided<double> Transposed(const double* data, int64_t width) { return {data, 1, width}; }

// Runs several launches in order until one fails, and returns the first error.
template <class... Launch>
Status InOrder(const Launch&... launch) {
  Status status = kOk;
  (void)((status = launch(), status == kOk) && ...);
  return status;
}

}  // namespace

template <class Number>
typename FactoredStepOnGpu<Number>::Memory FactoredStepOnGpu<Number>::Take(
    const FactoredBatch& batch, int64_t num_classes, int64_t width, Scratch* scratch) {
  const int64_t size = batch.batch, num_ids = size * batch.num_targets;
  const auto take = [scratch](int64_t count) { return scratch->Take<double>(count); };
  Memory memory{};
  memory.rows = take(num_ids * width);
  memory.target_sums = take(size);
  memory.products = take(size * width);
  memory.by_features = take(size * width);
  memory.scales = take(size);
  memory.system = take(size * (size + width));
  memory.rest = take(size * width);
  memory.half = take(size * size);
  memory.squares = take(size * size);
  memory.stack = take(3 * size * width);
  memory.old_sums = take(2 * width);
  memory.factors = take(2 * size);
  memory.mixing = take(width * width);
  memory.inverse = take(width * width);
  memory.sums = take(2 * width);
  memory.gram = take(width * width);
  memory.vectors = scratch->Take<Number>(num_ids * width);
  memory.places = scratch->Take<int32_t>(num_ids);
  memory.merge = scratch->Take<char>(MergeRowsScratchBytes(num_ids, num_classes));
  memory.solve = scratch->Take<char>(SolveSystemScratchBytes(size));
  return memory;
}

template <class Number>
int64_t FactoredStepOnGpu<Number>::ScratchBytes(const FactoredBatch& batch, int64_t num_classes,
                                                int64_t width) {
  Scratch none(nullptr);
  Take(batch, num_classes, width, &none);
  return none.bytes();
}

template <class Number>
FactoredStepOnGpu<Number>::FactoredStepOnGpu(const FactoredState<Number>& state,
                                             const FactoredBatch& batch,
                                             const FactoredSlopes& slopes, void* scratch,
                                             Stream stream)
    : state_(state), batch_(batch), slopes_(slopes), stream_(stream) {
  Scratch parts(scratch);
  memory_ = Take(batch, state.num_classes, state.width, &parts);
}

template <class Number>
Status FactoredStepOnGpu<Number>::Gradient(int64_t dim, double* by_features) {
  const int64_t size = batch_.batch, width = state_.width;
  const GradientTermsBody<Number> terms{state_,
                                        batch_,
                                        slopes_,
                                        memory_.rows,
                                        memory_.target_sums,
                                        memory_.products,
                                        memory_.by_features};
  const DenseProduct of_targets{{size, width, width},       AsIs(memory_.products, width),
                                AsIs(state_.mixing, width), memory_.by_features,
                                memory_.by_features,        width};
  const FirstColumnsBody first_columns{memory_.by_features, width, dim, by_features};
  const int64_t num_ids = size * batch_.num_targets;
  return InOrder([&] { return CopyRows(state_, batch_.ids, num_ids, memory_.rows, stream_); },
                 [&] { return ForEach(size * width, terms, stream_); },
                 [&] { return Multiply(of_targets, stream_); },
                 [&] { return ForEach(size * dim, first_columns, stream_); });
}

template <class Number>
Status FactoredStepOnGpu<Number>::Compute(const double* learning_rate, double min_pivot,
                                          FactoredReport* report) {
  const ScalesBody scales{slopes_.by_q, learning_rate, memory_.scales};
  return InOrder([&] { return ForEach(batch_.batch, scales, stream_); },
                 [&] { return ComputeInverse(min_pivot, &report->smallest_pivot); },
                 [&] { return ComputeMixing(); }, [&] { return MergeTargets(); },
                 [&] { return ComputeSquares(learning_rate); }, [&] { return ComputeGram(); },
                 [&] { return ComputeSums(learning_rate); },
                 [&] { return ComputeVectors(learning_rate, report); },
                 [&] { return Report(report); });
}

template <class Number>
Status FactoredStepOnGpu<Number>::ComputeInverse(double min_pivot, double* smallest_pivot) {
  const int64_t size = batch_.batch, width = state_.width, stride = size + width;
  double* const solved = memory_.system + size;
  const auto features = AsIs(batch_.features, width);
  const auto columns = Transposed(batch_.features, width);
  const DenseProduct squares{{size, width, size}, features, columns, nullptr,
                             memory_.system,      stride};
  const DenseProduct right{
      {size, width, width}, features, AsIs(state_.inverse, width), nullptr, solved, stride};
  const DenseProduct inverse{{width, size, width},
                             columns,
                             AsIs(solved, stride),
                             state_.inverse,
                             memory_.inverse,
                             width,
                             1,
                             memory_.scales};
  const SystemBody system{memory_.scales, size, stride, memory_.system};
  return InOrder([&] { return Multiply(squares, stream_); },
                 [&] { return ForEach(size * size, system, stream_); },
                 [&] { return Multiply(right, stream_); },
                 [&] {
                   return SolveSystem({memory_.system, size, width}, min_pivot, memory_.solve,
                                      smallest_pivot, stream_);
                 },
                 [&] { return Multiply(inverse, stream_); });
}

template <class Number>
Status FactoredStepOnGpu<Number>::ComputeMixing() {
  const int64_t width = state_.width;
  return Multiply({{width, batch_.batch, width},
                   Transposed(slopes_.mixed_features, width),
                   AsIs(batch_.features, width),
                   state_.mixing,
                   memory_.mixing,
                   width,
                   -1,
                   memory_.scales},
                  stream_);
}

template <class Number>
Status FactoredStepOnGpu<Number>::MergeTargets() {
  const int64_t num_ids = batch_.batch * batch_.num_targets;
  return InOrder(
      [&] {
        return MergeRows(batch_.ids, num_ids, state_.num_classes, memory_.merge, &merged_,
                         stream_);
      },
      [&] { return ForEach(num_ids, PlacesBody{merged_.positions, memory_.places}, stream_); });
}

// The rows of the stack are those of H', of -eta (W'E)', and of H' again.
template <class Number>
Status FactoredStepOnGpu<Number>::ComputeSquares(const double* learning_rate) {
  const int64_t size = batch_.batch, width = state_.width, all = size * width;
  double* const negative = memory_.stack + all;
  const GramTermsBody terms{slopes_,      learning_rate, width, memory_.by_features,
                            memory_.rest, negative};
  const DenseProduct half{{size, width, size},
                          AsIs(memory_.rest, width),
                          Transposed(batch_.features, width),
                          nullptr,
                          memory_.half,
                          size};
  const SquaresBody squares{
      batch_,       slopes_, learning_rate,  state_.num_classes, memory_.target_sums,
      memory_.half, merged_, memory_.places, memory_.squares};
  const auto copy_features = [&](double* to) {
    return CopyBytes(batch_.features, all * kBytesOfDouble, to, stream_);
  };
  return InOrder([&] { return ForEach(all, terms, stream_); },
                 [&] { return copy_features(memory_.stack); },
                 [&] { return copy_features(memory_.stack + 2 * all); },
                 [&] { return Multiply(half, stream_); },
                 [&] { return ForEachBlock(size, squares.kThreads, 0, squares, stream_); });
}

template <class Number>
Status FactoredStepOnGpu<Number>::ComputeGram() {
  const int64_t size = batch_.batch, width = state_.width;
  double* const negative = memory_.stack + size * width;
  const DenseProduct add_squares{{size, size, width},
                                 AsIs(memory_.squares, size),
                                 AsIs(batch_.features, width),
                                 negative,
                                 negative,
                                 width};
  DenseProduct gram{{width, 2 * size, width},
                    Transposed(negative, width),
                    AsIs(memory_.stack, width),
                    state_.gram,
                    memory_.gram,
                    width};
  gram.lower = true;
  return InOrder([&] { return Multiply(add_squares, stream_); },
                 [&] { return Multiply(gram, stream_); });
}

template <class Number>
Status FactoredStepOnGpu<Number>::ComputeSums(const double* learning_rate) {
  const int64_t size = batch_.batch, width = state_.width, bytes = width * kBytesOfDouble;
  const DenseProduct dots{{2, width, size},
                          AsIs(memory_.old_sums, width),
                          Transposed(batch_.features, width),
                          nullptr,
                          memory_.factors,
                          size};
  const DenseProduct sums{{2, size, width},
                          AsIs(memory_.factors, size),
                          AsIs(batch_.features, width),
                          memory_.old_sums,
                          memory_.sums,
                          width};
  const FactorsBody factors{slopes_, learning_rate,      memory_.target_sums,
                            size,    state_.num_classes, memory_.factors};
  return InOrder(
      [&] { return CopyBytes(state_.offset, bytes, memory_.old_sums, stream_); },
      [&] { return CopyBytes(state_.total, bytes, memory_.old_sums + width, stream_); },
      [&] { return Multiply(dots, stream_); }, [&] { return ForEach(size, factors, stream_); },
      [&] { return Multiply(sums, stream_); });
}

template <class Number>
Status FactoredStepOnGpu<Number>::ComputeVectors(const double* learning_rate,
                                                 FactoredReport* report) {
  const int64_t size = batch_.batch, width = state_.width;
  const NewVectorsBody<Number> vectors{memory_.rows,          width,
                                       slopes_.by_a,          learning_rate,
                                       memory_.system + size, size + width,
                                       batch_.num_targets,    merged_,
                                       memory_.vectors,       &report->not_finite};
  return ForEach(merged_.num_ids * width, vectors, stream_);
}

template <class Number>
Status FactoredStepOnGpu<Number>::Report(FactoredReport* report) {
  const int64_t width = state_.width, square = width * width;
  const auto flag = [&](int value, const double* numbers, int64_t size, int64_t lower_width) {
    const FlagNotFiniteBody body{numbers, lower_width, 1u << value, &report->not_finite};
    return ForEach(size, body, stream_);
  };
  const FoldReportBody folds{memory_.mixing, memory_.inverse, state_.folds, report};
  return InOrder(
      [&] { return ForEachBlock(1, folds.kThreads, folds.kSharedBytes, folds, stream_); },
      [&] { return flag(1, memory_.mixing, square, 0); },
      [&] { return flag(2, memory_.inverse, square, 0); },
      [&] { return flag(3, memory_.sums, width, 0); },
      [&] { return flag(4, memory_.sums + width, width, 0); },
      [&] { return flag(5, memory_.gram, square, width); });
}

template <class Number>
Status FactoredStepOnGpu<Number>::Write(int64_t* steps) {
  const int64_t width = state_.width, square = width * width;
  const WriteVectorsBody<Number> vectors{merged_, memory_.vectors, state_};
  const WriteGramBody gram{memory_.gram, width, state_.gram};
  const auto copy = [&](const double* from, int64_t count, double* to) {
    return CopyBytes(from, count * kBytesOfDouble, to, stream_);
  };
  return InOrder([&] { return ForEach(merged_.num_ids * width, vectors, stream_); },
                 [&] { return copy(memory_.mixing, square, state_.mixing); },
                 [&] { return copy(memory_.inverse, square, state_.inverse); },
                 [&] { return copy(memory_.sums, width, state_.offset); },
                 [&] { return copy(memory_.sums + width, width, state_.total); },
                 [&] { return ForEach(square, gram, stream_); },
                 [&] { return ForEach(1, CountStepBody{steps}, stream_); });
}

template class FactoredStepOnGpu<float>;
template class FactoredStepOnGpu<double>;

}  // namespace cuda
}  // namespace largeout
