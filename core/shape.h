#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/check.h"

namespace ringtape {

inline constexpr int kMaxRank = 8;

// The sizes of a tensor's axes (or their strides), stored inline. Prints as (2, 3).
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[size_t(axis)]; }
  int64_t& operator[](int axis) { return dims_[size_t(axis)]; }
  int64_t size() const;  // the product; 1 for rank 0
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  void append(int64_t dim);
  Shape with(int axis, int64_t dim) const;  // a copy with one axis replaced
  Shape without(int axis) const;
  bool operator==(const Shape&) const = default;
  std::string str() const;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// `axis` in [-rank, rank) counted from the front; throws ShapeError naming `op` otherwise.
int normalize_axis(int axis, int rank, const char* op);

// Row-major strides, in elements.
Shape contiguous_strides(const Shape& shape);

// The shape that both broadcast to by NumPy's rule (align at the end; 1 stretches); throws ShapeError naming `op`.
Shape broadcast(const Shape& a, const Shape& b, const char* op);

}  // namespace ringtape
