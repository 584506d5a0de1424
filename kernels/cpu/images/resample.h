#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cpu/vector/vector.h"
#include "kernels/resample_taps.h"

RT_ISA_BEGIN

namespace {

// Output pixels [begin, begin + count) of an axis.
struct AxisPart {
  ScaledAxis axis;
  int64_t begin, count;
};

// The weights of an axis: output pixel i has weights[i * count ..], for input pixels from first[i] on.
struct ResampledAxis {
  int64_t count = 0, pairs = 0;
  std::vector<int64_t> first;
  std::vector<int32_t> weights;
  // For resample_rgb_row: each weight as 2^kLowBits high + low, two weights in a lane, in the order of its vectors.
  std::vector<int16_t> split;

  void prepare(const AxisPart& a, bool rgb) {
    count = std::min(most_taps(a.axis), a.axis.pixels());
    first.resize(size_t(a.count));
    weights.assign(size_t(a.count * count), 0);
    for (int64_t i = 0; i < a.count; ++i) {
      const Taps t = taps_of(a.axis, a.begin + i);
      const int64_t at = std::min(t.first, a.axis.pixels() - count);
      first[size_t(i)] = at;
      for (int64_t x = t.first; x < t.end; ++x) weights[size_t(i * count + x - at)] = weight(t, a.axis, a.begin + i, x);
    }
    pairs = rgb && count <= kMaxSplit ? (count + 1) / 2 : 0;
    if (pairs > 0) prepare_split(a.count);
  }

  static constexpr int kLowBits = 15;
  static constexpr int64_t kMaxSplit = 256;  // the sums of more low parts might overflow

 private:
  // For four pixels and two weights: low parts of pixels 0 and 2, then their high parts, then those of 1 and 3; each
  // pixel's pair four times.
  void prepare_split(int64_t pixels) {
    constexpr int64_t kVector = 16, kHalf = 8;
    split.resize(size_t((pixels / 4) * pairs * 4 * kVector));
    int16_t* to = split.data();
    for (int64_t i = 0; i + 4 <= pixels; i += 4)
      for (int64_t p = 0; p < pairs; ++p)
        for (int64_t odd = 0; odd < 2; ++odd, to += 2 * kVector)
          for (int64_t half = 0; half < 2; ++half)
            for (int64_t k = 0; k < 2; ++k) {
              const int32_t w = 2 * p + k < count ? weights[size_t((i + odd + 2 * half) * count + 2 * p + k)] : 0;
              for (int64_t lane = 0; lane < 4; ++lane) {
                int16_t* const at = to + half * kHalf + 2 * lane + k;
                at[0] = int16_t(w & ((1 << kLowBits) - 1)), at[kVector] = int16_t(w >> kLowBits);
              }
            }
  }
};

// Resamples a row of C interleaved channels to `width` pixels, from pixel i on.
template <int64_t known_channels, int64_t known_count>
void resample_row(uint8_t* __restrict y, const uint8_t* __restrict x, const ResampledAxis& axis, int64_t i,
                  int64_t width, int64_t channels) {
  if constexpr (known_channels > 0) channels = known_channels;
  const int64_t count = known_count > 0 ? known_count : axis.count;
  for (; i < width; ++i) {
    const int32_t* const w = axis.weights.data() + i * count;
    const uint8_t* const from = x + axis.first[size_t(i)] * channels;
    for (int64_t c = 0; c < channels; ++c) {
      int32_t sum = 0;
      for (int64_t k = 0; k < count; ++k) sum += w[k] * from[k * channels + c];
      y[i * channels + c] = resampled(sum);
    }
  }
}

#if RT_ISA_LEVEL == RT_ISA_avx2 || RT_ISA_LEVEL == RT_ISA_avx512
// Of two pixels, six bytes each at the begin of a 128-bit half, the sums of both bytes of each channel times the low
// and the high parts of two weights.
RT_INLINE void add_pair(__m256i& low, __m256i& high, const uint8_t* a, const uint8_t* b, const int16_t* split) {
  const __m256i pick =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i bytes =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a))),
                              _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)), 1);
  const __m256i x = _mm256_shuffle_epi8(bytes, pick);
  const auto* w = reinterpret_cast<const __m256i*>(split);
  low = _mm256_add_epi32(low, _mm256_madd_epi16(x, _mm256_loadu_si256(w)));
  high = _mm256_add_epi32(high, _mm256_madd_epi16(x, _mm256_loadu_si256(w + 1)));
}

RT_INLINE __m256i rounded(__m256i low, __m256i high) {
  return _mm256_srai_epi32(_mm256_add_epi32(low, _mm256_slli_epi32(high, ResampledAxis::kLowBits)), kTapBits);
}

// The pixels of a row of three channels that can be computed by fours; returns their number. Reads up to `end`. Writes
// up to 2 bytes behind the row.
template <int64_t known_pairs>
int64_t resample_rgb_row(uint8_t* y, const uint8_t* x, const uint8_t* end, const ResampledAxis& axis, int64_t width) {
  constexpr int64_t kLoad = 16;
  const __m256i half = _mm256_set1_epi32(1 << (kTapBits - 1));
  const __m256i pack =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
  const int64_t pairs = known_pairs > 0 ? known_pairs : axis.pairs, reach = (pairs - 1) * 6 + kLoad;
  const int16_t* split = axis.split.data();
  const int64_t* first = axis.first.data();
  int64_t i = 0;
  for (; i + 4 <= width && end - x >= first[3] * 3 + reach; i += 4, first += 4) {  // they ascend
    const uint8_t* const from[4] = {x + first[0] * 3, x + first[1] * 3, x + first[2] * 3, x + first[3] * 3};
    __m256i low[2] = {half, half}, high[2] = {};
    for (int64_t p = 0; p < pairs; ++p, split += 64) {
      add_pair(low[0], high[0], from[0] + p * 6, from[2] + p * 6, split);
      add_pair(low[1], high[1], from[1] + p * 6, from[3] + p * 6, split + 32);
    }
    const __m256i words = _mm256_packus_epi32(rounded(low[0], high[0]), rounded(low[1], high[1]));  // 0, 1 and 2, 3
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_packus_epi16(words, words), pack);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(y + 3 * i), _mm256_castsi256_si128(bytes));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(y + 3 * i + 6), _mm256_extracti128_si256(bytes, 1));
  }
  return i;
}

// The bytes of weighted sums of rows that can be computed by 32; returns their number.
template <int64_t known_count>
int64_t resample_wide_rows(uint8_t* y, const uint8_t* const* rows, const int32_t* w, int64_t count, int64_t n) {
  if constexpr (known_count > 0) count = known_count;
  const __m256i half = _mm256_set1_epi32(1 << (kTapBits - 1)), zero = _mm256_setzero_si256();
  constexpr int32_t kLow = (1 << ResampledAxis::kLowBits) - 1;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i low[4] = {half, half, half, half}, high[4] = {};
    for (int64_t k = 0; k < count; k += 2) {
      const bool two = k + 1 < count;
      const int32_t w0 = w[k], w1 = two ? w[k + 1] : 0;
      const __m256i low_pair = _mm256_set1_epi32((w0 & kLow) | (w1 & kLow) << 16),
                    high_pair = _mm256_set1_epi32((w0 >> ResampledAxis::kLowBits & 0xffff) |
                                                  w1 >> ResampledAxis::kLowBits << 16);
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k] + i)),
                    b = two ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k + 1] + i)) : zero;
      const __m256i ab[2] = {_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)};
      for (int q = 0; q < 4; ++q) {
        const __m256i x = q % 2 == 0 ? _mm256_unpacklo_epi8(ab[q / 2], zero) : _mm256_unpackhi_epi8(ab[q / 2], zero);
        low[q] = _mm256_add_epi32(low[q], _mm256_madd_epi16(x, low_pair));
        high[q] = _mm256_add_epi32(high[q], _mm256_madd_epi16(x, high_pair));
      }
    }
    for (int q = 0; q < 4; ++q) low[q] = rounded(low[q], high[q]);
    const __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(low[0], low[1]), _mm256_packus_epi32(low[2], low[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i), bytes);
  }
  return i;
}
#endif

// y[i] is the weighted sum of rows[k][i].
template <int64_t known_count>
void resample_rows(uint8_t* __restrict y, const uint8_t* const* rows, const int32_t* w, int64_t count, int64_t n) {
  if constexpr (known_count > 0) count = known_count;
  int64_t i = 0;
#if RT_ISA_LEVEL == RT_ISA_avx2 || RT_ISA_LEVEL == RT_ISA_avx512
  if (count <= ResampledAxis::kMaxSplit) i = resample_wide_rows<known_count>(y, rows, w, count, n);
#endif
  for (; i < n; ++i) {
    int32_t sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += w[k] * rows[k][i];
    y[i] = resampled(sum);
  }
}

// Resamples images, row after row. Keeps its memory for the next image.
class Resampler {
 public:
  // x: the first pixel of the part to resample, whose rows are `stride` bytes apart. It has at least one pixel. An axis
  // that keeps its length keeps its pixels: each has the weight 1.
  void begin(const uint8_t* x, int64_t stride, int64_t channels, const AxisPart& rows, const AxisPart& columns) {
    x_ = x, stride_ = stride, channels_ = channels, width_ = columns.count;
    end_ = x + (rows.axis.pixels() - 1) * stride + columns.axis.pixels() * channels;
    same_rows_ = rows.axis.same(), same_columns_ = columns.axis.same();
    top_ = rows.begin, left_ = columns.begin;
    if (!same_rows_) rows_.prepare(rows, false);
    if (!same_columns_) columns_.prepare(columns, channels == 3);
    kept_ = same_rows_ ? 1 : rows_.count;
    pitch_ = width_ * channels + kBehind;
    if (!same_columns_) narrow_.resize(size_t(kept_ * pitch_));
    taken_.resize(size_t(kept_));
    filled_ = 0;
  }

  // Row i of the result, to `to`. Rows are asked for in ascending order.
  void row(int64_t i, uint8_t* to) {
    const int64_t first = same_rows_ ? top_ + i : rows_.first[size_t(i)], bytes = width_ * channels_;
    if (!same_columns_)
      for (filled_ = std::max(filled_, first); filled_ < first + kept_; ++filled_) fill(filled_);
    for (int64_t k = 0; k < kept_; ++k)
      taken_[size_t(k)] = same_columns_ ? x_ + (first + k) * stride_ + left_ * channels_ : narrow(first + k);
    const int32_t* const w = kept_ == 1 ? nullptr : rows_.weights.data() + i * kept_;
    if (kept_ == 1) std::memcpy(to, taken_[0], size_t(bytes));
    else if (kept_ == 2) resample_rows<2>(to, taken_.data(), w, kept_, bytes);
    else if (kept_ == 3) resample_rows<3>(to, taken_.data(), w, kept_, bytes);
    else resample_rows<0>(to, taken_.data(), w, kept_, bytes);
  }

 private:
  static constexpr int64_t kBehind = 2;  // bytes that resample_rgb_row may write

  uint8_t* narrow(int64_t r) { return narrow_.data() + r % kept_ * pitch_; }
  void fill(int64_t r) {
    const uint8_t* const x = x_ + r * stride_;
    uint8_t* const y = narrow(r);
    int64_t done = 0;
#if RT_ISA_LEVEL == RT_ISA_avx2 || RT_ISA_LEVEL == RT_ISA_avx512
    if (columns_.pairs == 1) done = resample_rgb_row<1>(y, x, end_, columns_, width_);
    else if (columns_.pairs == 2) done = resample_rgb_row<2>(y, x, end_, columns_, width_);
    else if (columns_.pairs > 2) done = resample_rgb_row<0>(y, x, end_, columns_, width_);
#endif
    if (channels_ == 3 && columns_.count == 2) resample_row<3, 2>(y, x, columns_, done, width_, 3);
    else if (channels_ == 3) resample_row<3, 0>(y, x, columns_, done, width_, 3);
    else resample_row<0, 0>(y, x, columns_, done, width_, channels_);
  }

  const uint8_t *x_ = nullptr, *end_ = nullptr;
  int64_t stride_ = 0, channels_ = 0, width_ = 0, pitch_ = 0;
  int64_t top_ = 0, left_ = 0;  // of the result
  bool same_rows_ = false, same_columns_ = false;
  ResampledAxis rows_, columns_;
  int64_t kept_ = 0, filled_ = 0;
  std::vector<uint8_t> narrow_;  // input rows before `filled_`, the last `kept_` of them, resampled along the row
  std::vector<const uint8_t*> taken_;
};

}  // namespace

RT_ISA_END
