#include <cstdint>
#include <cstring>

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/optimizers/row_update_formulas.h"
#include "custom_ops/core/optimizers/row_update_rules.h"
#include "custom_ops/core/rows/row_runs.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// How far ahead rows are prefetched. Narrow rows are processed faster, so they need a longer
// distance.
constexpr int64_t kRowsAhead = 8;
constexpr int64_t kNarrowRowsAhead = 32;

struct Root {
  Floats operator()(Floats x) const { return Sqrt(x); }
};

inline float SumLanes(Floats x) {
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += x[lane];
  return sum;
}

// kLanes consecutive floats of a row.
struct FullLanes {
  static Floats Read(const float* from) { return Load(from); }
  static void Write(Floats value, float* to) { Store(value, to); }
};

// The last `count` floats of a row whose length is not a multiple of kLanes.
struct PartLanes {
  int64_t count;
  Floats Read(const float* from) const { return LoadPart(from, count); }
  void Write(Floats value, float* to) const { StorePart(value, count, to); }
};

// Calls function(lanes, column) for every group of columns in a row.
template <typename Function>
inline void ForColumns(int64_t dim, const Function& function) {
  int64_t column = 0;
  for (; column + kLanes <= dim; column += kLanes) function(FullLanes{}, column);
  if (column < dim) function(PartLanes{dim - column}, column);
}

// Starts the walk of the page table, which takes most of the time. The processor fetches the
// following lines on its own. (Prefetching all lines of three rows is no faster than not
// prefetching.)
inline void PrefetchRow(const float* row) { __builtin_prefetch(row, 1); }

inline const float* Gradient(const RowSegments& segments, int64_t i) {
  return segments.values + segments.positions[i] * segments.dim;
}

inline void AddRow(const float* row, int64_t dim, float* sum) {
  ForColumns(dim, [&](auto lanes, int64_t column) {
    lanes.Write(lanes.Read(sum + column) + lanes.Read(row + column), sum + column);
  });
}

// Sums the run that starts at `begin`. Returns where the next run starts.
inline int64_t SumRun(const RowSegments& segments, int64_t begin, int64_t end, float* sum) {
  if (end - begin > kRunLength) end = begin + kRunLength;
  CopyFloats(Gradient(segments, begin), segments.dim, sum);
  for (int64_t i = begin + 1; i < end; ++i) AddRow(Gradient(segments, i), segments.dim, sum);
  return end;
}

inline void SumSegment(const RowSegments& segments, int64_t segment, float* run, float* sum) {
  const int64_t end = segments.offsets[segment + 1];
  int64_t i = SumRun(segments, segments.offsets[segment], end, sum);
  while (i < end) {
    i = SumRun(segments, i, end, run);
    AddRow(run, segments.dim, sum);
  }
}

// Where UpdateSegments finds row `row` of the variable: Prefetch(row), Open(row), which returns
// the row in float32, and, after its update, Close(row).
struct FloatTable {
  float* rows;
  int64_t dim;

  void Prefetch(int64_t row) const { PrefetchRow(rows + row * dim); }
  float* Open(int64_t row) const { return rows + row * dim; }
  void Close(int64_t) const {}
};

struct RoundedTable {
  const RoundedRows& table;
  int64_t dim;
  float* wide;  // scratch for a row

  void Prefetch(int64_t row) const { __builtin_prefetch(table.rows + row * dim, 1); }
  float* Open(int64_t row) const {
    WidenRow(table.rows + row * dim, dim, wide);
    return wide;
  }
  void Close(int64_t row) const { StoreRounded(wide, dim, row, table); }
};

// Adam on one row; see AdamArguments. The update structs of all optimizers have this form:
// PrefetchSlots(row), Start(row, row of the variable, gradient), then Update(lanes, column,
// gradient of the columns).
struct AdamRowUpdate {
  const AdamArguments& args;
  const int64_t dim;
  const double log_beta_1 = args.last_step ? __builtin_log(args.beta_1) : 0;
  const double log_beta_2 = args.last_step ? __builtin_log(args.beta_2) : 0;
  const Floats gain_1 = Broadcast(static_cast<float>(1 - args.beta_1));
  const Floats gain_2 = Broadcast(static_cast<float>(1 - args.beta_2));
  float* variable = nullptr;
  float* momentum = nullptr;
  float* velocity = nullptr;
  Floats decay_1 = Broadcast(1.0f);
  Floats decay_2 = Broadcast(1.0f);

  // beta^gap.
  static float Decay(int64_t gap, double log_beta) {
    return gap > 0 ? static_cast<float>(__builtin_exp(gap * log_beta)) : 1.0f;
  }

  void PrefetchSlots(int64_t row) const {
    if (args.momentum != nullptr) PrefetchRow(args.momentum + row * dim);
    PrefetchRow(args.velocity + row * dim);
    if (args.last_step != nullptr) __builtin_prefetch(args.last_step + row, 1);
  }

  void Start(int64_t row, float* row_of_variable, const float*) {
    variable = row_of_variable;
    if (args.momentum != nullptr) momentum = args.momentum + row * dim;
    velocity = args.velocity + row * dim;
    if (args.last_step == nullptr) return;
    const int64_t gap = args.step - args.last_step[row] - 1;
    if (momentum != nullptr) decay_1 = Broadcast(Decay(gap, log_beta_1));
    decay_2 = Broadcast(Decay(gap, log_beta_2));
    args.last_step[row] = args.step;
  }

  template <typename Lanes>
  void Update(Lanes lanes, int64_t column, Floats gradient) const {
    Floats m = {};
    if (momentum != nullptr) m = lanes.Read(momentum + column);
    Floats v = lanes.Read(velocity + column);
    Floats w = lanes.Read(variable + column);
    AdamFormula(args, decay_1, decay_2, gain_1, gain_2, Root{}, gradient, &w, &m, &v);
    if (momentum != nullptr) lanes.Write(m, momentum + column);
    lanes.Write(v, velocity + column);
    lanes.Write(w, variable + column);
  }
};

struct AdagradRowUpdate {
  const AdagradArguments& args;
  const int64_t dim;
  float* variable = nullptr;
  float* accumulator = nullptr;

  void PrefetchSlots(int64_t row) const { PrefetchRow(args.accumulator + row * dim); }

  void Start(int64_t row, float* row_of_variable, const float*) {
    variable = row_of_variable;
    accumulator = args.accumulator + row * dim;
  }

  template <typename Lanes>
  void Update(Lanes lanes, int64_t column, Floats gradient) const {
    Floats a = lanes.Read(accumulator + column);
    Floats w = lanes.Read(variable + column);
    AdagradFormula(args, Root{}, gradient, &w, &a);
    lanes.Write(a, accumulator + column);
    lanes.Write(w, variable + column);
  }
};

struct RowwiseAdagradRowUpdate {
  const RowwiseAdagradArguments& args;
  const int64_t dim;
  float* variable = nullptr;
  Floats scale = {};

  void PrefetchSlots(int64_t row) const { __builtin_prefetch(args.accumulator + row, 1); }

  void Start(int64_t row, float* row_of_variable, const float* gradient) {
    variable = row_of_variable;
    Floats squares = {};
    ForColumns(dim, [&](auto lanes, int64_t column) {
      const Floats g = lanes.Read(gradient + column);
      squares += g * g;
    });
    float& accumulator = args.accumulator[row];
    accumulator += SumLanes(squares) / static_cast<float>(dim);
    scale = args.learning_rate / Root{}(Broadcast(accumulator + args.epsilon));
  }

  template <typename Lanes>
  void Update(Lanes lanes, int64_t column, Floats gradient) const {
    Floats w = lanes.Read(variable + column);
    RowwiseAdagradFormula(args, scale, gradient, &w);
    lanes.Write(w, variable + column);
  }
};

struct MomentumRowUpdate {
  const MomentumArguments& args;
  const int64_t dim;
  float* variable = nullptr;
  float* momentum = nullptr;

  void PrefetchSlots(int64_t row) const {
    if (args.momentum != nullptr) PrefetchRow(args.momentum + row * dim);
  }

  void Start(int64_t row, float* row_of_variable, const float*) {
    variable = row_of_variable;
    if (args.momentum != nullptr) momentum = args.momentum + row * dim;
  }

  template <typename Lanes>
  void Update(Lanes lanes, int64_t column, Floats gradient) const {
    Floats w = lanes.Read(variable + column);
    Floats m = {};
    if (momentum != nullptr) m = lanes.Read(momentum + column);
    MomentumFormula(args, gradient, &w, &m);
    if (momentum != nullptr) lanes.Write(m, momentum + column);
    lanes.Write(w, variable + column);
  }
};

template <typename Table, typename RowUpdate>
inline void UpdateSegments(const RowSegments& segments, const Table& table, RowUpdate update,
                           int64_t begin, int64_t end, float* buffer) {
  float* const sum = buffer + segments.dim;
  const int64_t ahead = segments.dim < kLanes ? kNarrowRowsAhead : kRowsAhead;
  for (int64_t segment = begin; segment < end; ++segment) {
    if (segment + ahead < end) {
      table.Prefetch(segments.ids[segment + ahead]);
      update.PrefetchSlots(segments.ids[segment + ahead]);
    }
    const int64_t first = segments.offsets[segment];
    const bool single = segments.offsets[segment + 1] == first + 1;
    if (!single) SumSegment(segments, segment, buffer, sum);
    const float* gradient = single ? Gradient(segments, first) : sum;
    const int64_t row = segments.ids[segment];
    update.Start(row, table.Open(row), gradient);
    ForColumns(segments.dim, [&](auto lanes, int64_t column) {
      update.Update(lanes, column, lanes.Read(gradient + column));
    });
    table.Close(row);
  }
}

template <typename RowUpdate>
inline void UpdateTable(const RowSegments& segments, float* variable, const RowUpdate& update,
                        int64_t begin, int64_t end, float* buffer) {
  const int64_t dim = segments.dim;
  if (segments.rounded.rows == nullptr) {
    UpdateSegments(segments, FloatTable{variable, dim}, update, begin, end, buffer);
  } else {
    const RoundedTable table{segments.rounded, dim, buffer + 2 * dim};
    UpdateSegments(segments, table, update, begin, end, buffer);
  }
}

}  // namespace

void RowAdam(const RowSegments& segments, const AdamArguments& arguments, int64_t begin,
             int64_t end, float* buffer) {
  UpdateTable(segments, arguments.variable, AdamRowUpdate{arguments, segments.dim}, begin, end,
              buffer);
}

void RowAdagrad(const RowSegments& segments, const AdagradArguments& arguments, int64_t begin,
                int64_t end, float* buffer) {
  UpdateTable(segments, arguments.variable, AdagradRowUpdate{arguments, segments.dim}, begin,
              end, buffer);
}

void RowRowwiseAdagrad(const RowSegments& segments, const RowwiseAdagradArguments& arguments,
                       int64_t begin, int64_t end, float* buffer) {
  UpdateTable(segments, arguments.variable, RowwiseAdagradRowUpdate{arguments, segments.dim},
              begin, end, buffer);
}

void RowMomentum(const RowSegments& segments, const MomentumArguments& arguments, int64_t begin,
                 int64_t end, float* buffer) {
  UpdateTable(segments, arguments.variable, MomentumRowUpdate{arguments, segments.dim}, begin,
              end, buffer);
}

void SumSegments(const RowSegments& segments, float* sums, int64_t begin, int64_t end,
                 float* buffer) {
  for (int64_t segment = begin; segment < end; ++segment) {
    SumSegment(segments, segment, buffer, sums + segment * segments.dim);
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
