#include "comm/bench/pattern.h"

#include <cmath>

namespace ringtape::comm {

using comm::Collective;
using comm::Operation;

namespace {

// Element i of a rank's input: 0 to 3, without a period that could hide a wrong position. For products, at most one
// rank has a 2.
int input(const Operation& operation, int ranks, int rank, int64_t i) {
  if (operation.op == ReduceOp::product) return (i + rank) % (ranks + 1) == 0 ? 2 : 1;
  return int((uint64_t(i) + 1) * 0x9e3779b97f4a7c15u * uint64_t(2 * rank + 1) >> 62);
}

double reduced_element(const Operation& operation, int ranks, int64_t i) {
  double y = input(operation, ranks, 0, i);
  for (int r = 1; r < ranks; ++r) {
    const double x = input(operation, ranks, r, i);
    switch (operation.op) {
      case ReduceOp::max: y = std::max(y, x); break;
      case ReduceOp::min: y = std::min(y, x); break;
      case ReduceOp::product: y *= x; break;
      default: y += x;
    }
  }
  if (operation.op != ReduceOp::avg) return y;
  return is_float(operation.dtype) ? y / ranks : std::trunc(y / ranks);
}

double output(const Operation& operation, int ranks, int rank, int64_t i) {
  const int64_t c = std::max<int64_t>(operation.count, 1);
  const auto moved = [&](int from, int64_t at) { return double(input(operation, ranks, from, at)); };
  switch (operation.kind) {
    case Collective::all_reduce:
    case Collective::reduce: return reduced_element(operation, ranks, i);
    case Collective::reduce_scatter: return reduced_element(operation, ranks, rank * c + i);
    case Collective::broadcast: return moved(operation.root, i);
    case Collective::scatter: return moved(operation.root, rank * c + i);
    case Collective::all_to_all: return moved(int(i / c), rank * c + i % c);
    default: return moved(int(i / c), i % c);  // all_gather, gather
  }
}

template <class T> T as(double x) {
  if constexpr (is_half_v<T>) return T(float(x));
  else return T(x);
}

// The distance from 1 to the next number.
double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::f32: return 0x1p-23;
    case DType::f64: return 0x1p-52;
    default: return 0;
  }
}

}  // namespace

int64_t input_elements(const Operation& operation, int ranks, int rank) {
  switch (operation.kind) {
    case Collective::barrier: return 0;
    case Collective::reduce_scatter:
    case Collective::all_to_all: return ranks * operation.count;
    case Collective::scatter: return rank == operation.root ? ranks * operation.count : 0;
    case Collective::broadcast: return rank == operation.root ? operation.count : 0;
    default: return operation.count;
  }
}

int64_t output_elements(const Operation& operation, int ranks, int rank) {
  switch (operation.kind) {
    case Collective::barrier: return 0;
    case Collective::all_gather:
    case Collective::all_to_all: return ranks * operation.count;
    case Collective::gather: return rank == operation.root ? ranks * operation.count : 0;
    case Collective::reduce: return rank == operation.root ? operation.count : 0;
    default: return operation.count;
  }
}

void fill_input(void* data, const Operation& operation, int ranks, int rank) {
  dispatch(operation.dtype, [&]<class T>() {
    T* const x = static_cast<T*>(data);
    for (int64_t i = 0, n = input_elements(operation, ranks, rank); i < n; ++i)
      x[i] = as<T>(input(operation, ranks, rank, i));
  });
}

int64_t count_wrong(const void* data, const Operation& operation, int ranks, int rank) {
  const double tolerance = operation.op == ReduceOp::avg ? 2 * epsilon(operation.dtype) : 0;
  int64_t wrong = 0;
  dispatch(operation.dtype, [&]<class T>() {
    const T* const y = static_cast<const T*>(data);
    for (int64_t i = 0, n = output_elements(operation, ranks, rank); i < n; ++i) {
      using C = compute_t<T>;
      const double expected = double(C(as<T>(output(operation, ranks, rank, i)))), got = double(C(y[i]));
      wrong += !(std::fabs(got - expected) <= tolerance * expected);
    }
  });
  return wrong;
}

}  // namespace ringtape::comm
