#include "emulation/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ringtape::emulation {
namespace {

constexpr int kLeast = -126;  // exponent of a float that is zero or subnormal
constexpr float kNan = std::bit_cast<float>(0x7fffffffu);

struct Format {
  int bits, exponent_bits, fraction_bits;
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr Format kFloat{32, 8, 23}, kFormats[] = {{16, 8, 7}, {16, 5, 10}, {19, 8, 10}};

struct Number {
  int64_t significand;
  int exponent;  // of the bit before its fraction
  bool finite;
};
constexpr Number decoded(uint32_t bits, Format f) {
  const uint32_t fraction = bits & ((1u << f.fraction_bits) - 1);
  const int field = int(bits >> f.fraction_bits) & ((1 << f.exponent_bits) - 1);
  const int64_t magnitude = int64_t(fraction) | (field > 0 ? int64_t{1} << f.fraction_bits : 0);
  return {bits >> (f.bits - 1) & 1 ? -magnitude : magnitude, std::max(field, 1) - f.bias(),
          field != (1 << f.exponent_bits) - 1};
}

// Cut towards zero.
int64_t shifted(int64_t x, int left) {
  if (left >= 0) return x << left;
  const int right = std::min(-left, 63);
  return x < 0 ? -(-x >> right) : x >> right;
}

// x * 2^exponent, cut towards zero.
float cut_to_float(int64_t x, int exponent) {
  const uint64_t magnitude = uint64_t(std::abs(x));
  const int surplus = std::max(int(std::bit_width(magnitude)) - 24, kLeast - 23 - exponent);
  const float cut = surplus > 0 ? std::ldexp(float(surplus > 63 ? 0 : magnitude >> surplus), exponent + surplus)
                                : std::ldexp(float(magnitude), exponent);
  return x < 0 ? -cut : cut;
}

float sum_of_specials(const TensorNumber* a, const TensorNumber* b, int count, float c) {
  const auto value = [](const TensorNumber& x) {
    return x.special != 0 ? double(x.special) : std::ldexp(double(x.significand), x.exponent);
  };
  double sum = double(c);
  for (int i = 0; i < count; ++i) sum += value(a[i]) * value(b[i]);
  return std::isnan(sum) ? kNan : float(sum);
}

// Most of the time of tests with tensor cores is spent here: the loops have no branches.
float fused_sum(const TensorNumber* a, const TensorNumber* b, int count, float c, int fraction_bits, int cut_bits) {
  const Number addend = decoded(std::bit_cast<uint32_t>(c), kFloat);
  int top = addend.significand != 0 ? addend.exponent : kLeast;
  for (int i = 0; i < count; ++i) top = std::max(top, a[i].exponent + b[i].exponent + 2 * fraction_bits);
  if (!addend.finite || top >= TensorNumber::kNotFinite / 2) return sum_of_specials(a, b, count, c);
  const int unit = top - cut_bits, left = cut_bits - 2 * fraction_bits;  // the most that a product is shifted
  int64_t sum = shifted(addend.significand, addend.exponent - kFloat.fraction_bits - unit);
  for (int i = 0; i < count; ++i) {
    const int64_t product = int64_t{a[i].significand} * b[i].significand, sign = product >> 63;
    const int right = std::min(top - (a[i].exponent + b[i].exponent + 2 * fraction_bits), 63);
    sum += ((((product ^ sign) - sign) << left >> right) ^ sign) - sign;
  }
  return cut_to_float(sum, unit);
}

}  // namespace

float rounded_to_tf32(float x) {
  if (!std::isfinite(x)) return std::isnan(x) ? kNan : x;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000u) & ~0x1fffu);
}

template <TensorType type> static TensorNumber number_of(uint32_t bits) {
  constexpr Format f = kFormats[size_t(type)];
  const Number x = decoded(bits, f);
  if (x.finite && x.significand == 0) return {};
  if (x.finite) return {int32_t(x.significand), x.exponent - f.fraction_bits, 0};
  const bool infinite = (bits & ((1u << f.fraction_bits) - 1)) == 0;
  return {0, TensorNumber::kNotFinite, !infinite ? kNan : x.significand < 0 ? -INFINITY : INFINITY};
}

TensorNumber tensor_number(TensorType type, uint32_t bits) {
  if (type == TensorType::bf16) return number_of<TensorType::bf16>(bits);
  if (type == TensorType::f16) return number_of<TensorType::f16>(bits);
  return number_of<TensorType::tf32>(bits >> 13);
}

float tensor_core_sum(TensorType type, const TensorNumber* a, const TensorNumber* b, int count, float c, int major) {
  const int fraction_bits = kFormats[size_t(type)].fraction_bits;
  if (major >= 9) return fused_sum(a, b, count, c, fraction_bits, 25);
  const int half = count / 2;
  c = fused_sum(a, b, half, c, fraction_bits, 24);
  return fused_sum(a + half, b + half, count - half, c, fraction_bits, 24);
}

TensorColumns::TensorColumns(const TensorNumber* b, int columns, int depth)
    : columns_(columns), depth_(depth), b_(b, b + columns * depth) {
  for (int k = 0; k < depth; ++k)
    for (int i = 0; i < columns; ++i) {
      const TensorNumber& x = b[i * depth + k];
      significands_.push_back(float(x.significand)), exponents_.push_back(x.exponent);
      finite_ = finite_ && x.exponent < TensorNumber::kNotFinite;
    }
}

// x * 2^exponent, cut towards zero; the common case without ldexp.
static float cut(int64_t x, int exponent) {
  const auto magnitude = uint64_t(std::abs(x));
  const int surplus = std::max(int(std::bit_width(magnitude)) - 24, 0), power = exponent + surplus;
  if (power < -100 || power > 100) return cut_to_float(x, exponent);
  const float out = float(magnitude >> surplus) * std::bit_cast<float>(uint32_t(power + 127) << 23);
  return x < 0 ? -out : out;
}

// As fused_sum, for all columns in loops without branches: a product is exact as a float, and a conversion cuts it.
void TensorColumns::add_products(TensorType type, const TensorNumber* a, float* c) const {
  constexpr int kAtOnce = 32, kCutBits = 25;
  const bool finite = finite_ && std::all_of(a, a + depth_, [](const TensorNumber& x) {
                        return x.exponent < TensorNumber::kNotFinite;
                      });
  const int fraction_bits = kFormats[size_t(type)].fraction_bits, left = kCutBits - 2 * fraction_bits;
  for (int first = 0; first < columns_; first += kAtOnce) {
    const int count = std::min(kAtOnce, columns_ - first);
    Number addends[kAtOnce];
    int top[kAtOnce];
    int64_t sum[kAtOnce] = {};
    bool all_finite = finite;
    for (int i = 0; i < count; ++i) {
      addends[i] = decoded(std::bit_cast<uint32_t>(c[first + i]), kFloat);
      top[i] = addends[i].significand != 0 ? addends[i].exponent : kLeast;
      all_finite = all_finite && addends[i].finite;
    }
    if (!all_finite) {
      for (int i = first; i < first + count; ++i)
        c[i] = tensor_core_sum(type, a, b_.data() + i * depth_, depth_, c[i], 9);
      continue;
    }
    for (int k = 0; k < depth_; ++k)
      for (int i = 0; i < count; ++i)
        top[i] = std::max(top[i], a[k].exponent + exponents_[size_t(k * columns_ + first + i)] + 2 * fraction_bits);
    for (int k = 0; k < depth_; ++k) {
      const auto mine = float(a[k].significand);
      const int exponent = a[k].exponent + 2 * fraction_bits + left + 127;
      int32_t terms[kAtOnce];
      for (int i = 0; i < count; ++i) {
        const size_t at = size_t(k * columns_ + first + i);
        const int scale = std::max(exponent + exponents_[at] - top[i], 1);  // of what is cut to zero anyway
        terms[i] = int32_t(mine * significands_[at] * std::bit_cast<float>(uint32_t(scale) << 23));
      }
      for (int i = 0; i < count; ++i) sum[i] += terms[i];
    }
    for (int i = 0; i < count; ++i) {
      const int unit = top[i] - kCutBits;
      c[first + i] =
          cut(sum[i] + shifted(addends[i].significand, addends[i].exponent - kFloat.fraction_bits - unit), unit);
    }
  }
}

}  // namespace ringtape::emulation
