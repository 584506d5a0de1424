#include "core/shape.h"

#include <algorithm>

namespace ringtape {

Shape::Shape(std::span<const int64_t> dims) {
  RT_CHECK_AS(ShapeError, dims.size() <= kMaxRank, "a shape has at most ", kMaxRank, " axes, got ", dims.size());
  for (int64_t d : dims) append(d);
}

void Shape::append(int64_t dim) {
  RT_CHECK_AS(ShapeError, rank_ < kMaxRank, "a shape has at most ", kMaxRank, " axes");
  dims_[size_t(rank_++)] = dim;
}

int64_t Shape::size() const {
  int64_t n = 1;
  bool too_many = false;
  for (int64_t d : *this) too_many = __builtin_mul_overflow(n, d, &n) || too_many;
  if (!too_many) return n;
  RT_CHECK_AS(ShapeError, std::find(begin(), end(), 0) != end(), "a shape ", str(), ": too many elements");
  return 0;
}

Shape Shape::with(int axis, int64_t dim) const {
  Shape out = *this;
  out[axis] = dim;
  return out;
}

Shape Shape::without(int axis) const {
  Shape out;
  for (int i = 0; i < rank_; ++i)
    if (i != axis) out.append((*this)[i]);
  return out;
}

std::string Shape::str() const {
  std::string out = "(";
  for (int i = 0; i < rank_; ++i) out += (i ? ", " : "") + std::to_string((*this)[i]);
  return out + (rank_ == 1 ? ",)" : ")");
}

int normalize_axis(int axis, int rank, const char* op) {
  RT_CHECK_AS(ShapeError, axis >= -rank && axis < rank, op, ": axis ", axis, " of a tensor with ", rank, " axes");
  return axis < 0 ? axis + rank : axis;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

Shape broadcast(const Shape& a, const Shape& b, const char* op) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  const int lead = longer.rank() - shorter.rank();
  for (int i = 0; i < shorter.rank(); ++i) {
    int64_t& d = out[lead + i];
    const int64_t s = shorter[i];
    RT_CHECK_AS(ShapeError, d == s || d == 1 || s == 1, op, ": shapes ", a, " and ", b, " do not broadcast");
    if (d == 1) d = s;
  }
  return out;
}

}  // namespace ringtape
