#pragma once
#include <cstdint>

#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

constexpr int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }
constexpr int64_t round_up(int64_t x, int64_t y) { return ceil_div(x, y) * y; }

// Part q of [0, size) divided into `parts` parts, whose sizes differ by at most one.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
constexpr Range part_of(int64_t size, int64_t parts, int64_t q) { return {size * q / parts, size * (q + 1) / parts}; }

RT_ISA_END
