#pragma once
#include "core/random.h"
#include "kernels/image_changes.h"
#include "kernels/kernel.h"

namespace ringtape {

// Parameters of one call: an Augmentation in the kernels' units, and the position in the random stream.
struct AugmentParams {
  AugmentParams() = default;
  AugmentParams(const Augmentation& what, uint64_t seed, uint64_t epoch, bool gathered)
      : pad(what.pad), cutout(what.cutout), seed(seed), epoch(epoch), reflect(what.reflect),
        flip(what.flip || what.alternate_flip), alternate(what.alternate_flip), gathered(gathered) {
    constexpr double kRadian = 3.14159265358979323846 / 180;
    most_angle = int64_t(what.rotation * kRadian * double(int64_t{1} << 28) + 0.5);
  }
  int64_t pad = 0, cutout = 0;
  int64_t most_angle = 0;  // in units of 2^-28
  uint64_t seed = 0, epoch = 0;
  bool reflect = false;
  bool flip = false, alternate = false;
  bool gathered = false;
};

// y[b] is image index[b] (if gathered: image b, which is sample index[b] of the data set), augmented, with each byte
// replaced by its entry in the table. y (B, OH, OW, C), floating-point or u8, images u8 (N, H, W, C), index i64 (B) in
// [0, N), table (C, 256) of y's dtype; all contiguous. OH <= H + 2 pad and OW <= W + 2 pad. The augmentation of a
// sample depends only on seed, epoch and its index. All arithmetic is on integers, so every device and instruction set
// gives the same bits.
RT_KERNEL(augment, void(View y, View images, View index, View table, AugmentParams params));

// Calls f.template operator()<bits_t<T>>() for y's dtype T: elements of y are copied from the table, never computed, so
// that only their size matters.
template <class F> void dispatch_image(DType dtype, F&& f) {
  if (dtype == DType::u8) f.template operator()<uint8_t>();
  else dispatch_float(dtype, [&]<class T>() { f.template operator()<bits_t<T>>(); });
}

// The random choices for one image.
struct CropPlace {
  int64_t top = 0, left = 0;  // position of y in the image; negative in the padding
  bool flip = false;
  int64_t cosine = 1 << 16, sine = 0;  // of the angle, counter-clockwise, in units of 2^-16
  int64_t cut_top = 0, cut_left = 0;   // position of the cutout in y
};

// Cosine and sine in units of 2^-16 of x in units of 2^-28, |x| <= pi, by Taylor's series.
RT_HD inline void fixed_cosine_sine(int64_t x, int64_t& cosine, int64_t& sine) {
  constexpr int64_t kOne = int64_t{1} << 28;
  const int64_t square = (x * x) >> 28;
  int64_t even = kOne, odd = kOne;
  for (int64_t k = 16; k >= 2; k -= 2) {
    even = kOne - ((square * even) >> 28) / (k * (k - 1));
    odd = kOne - ((square * odd) >> 28) / (k * (k + 1));
  }
  cosine = (even + (1 << 11)) >> 12;
  sine = (((x * odd) >> 28) + (1 << 11)) >> 12;
}

// Maps random bits to [0, n).
RT_HD inline int64_t below(uint32_t bits, int64_t n) { return int64_t((uint64_t(bits) * uint64_t(n)) >> 32); }

// `free_rows` = H + 2 pad - OH, `free_columns` likewise.
RT_HD inline CropPlace place(const AugmentParams& p, int64_t sample, int64_t free_rows, int64_t free_columns,
                             int64_t out_height, int64_t out_width) {
  CropPlace at;
  const uint64_t stream = uint64_t(Stream::augment) | p.epoch << 8, counter = uint64_t(sample) << 4;
  const Philox4 r = philox(p.seed, stream, counter);
  at.top = below(r.x[0], free_rows + 1) - p.pad;
  at.left = below(r.x[1], free_columns + 1) - p.pad;
  at.flip = p.flip && (r.x[2] >> 31);
  if (p.alternate) {
    const Philox4 first = philox(p.seed, uint64_t(Stream::augment), counter);
    at.flip = ((first.x[2] >> 31) ^ (p.epoch & 1)) != 0;
  }
  if (p.most_angle > 0)
    fixed_cosine_sine((p.most_angle * (int64_t(r.x[3]) - (int64_t{1} << 31))) >> 31, at.cosine, at.sine);
  if (p.cutout > 0) {
    const Philox4 cut = philox(p.seed, stream, counter + 1);
    at.cut_top = below(cut.x[0], out_height) - p.cutout / 2;
    at.cut_left = below(cut.x[1], out_width) - p.cutout / 2;
  }
  return at;
}

// The reflection of pixel i, which may be up to n - 1 outside of [0, n).
RT_HD inline int64_t reflected(int64_t i, int64_t n) { return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i; }

// The position of pixel (row, column) of the rotated image in the original of that height and width, in units of 2^-17
// pixels. The next column is at (sine, cosine) << 1 from it.
struct Turned {
  int64_t y, x;
};
RT_HD inline Turned turned(const CropPlace& at, int64_t row, int64_t column, int64_t height, int64_t width) {
  const int64_t v = 2 * row - (height - 1), u = 2 * column - (width - 1);  // twice the distance from the centre
  return {at.sine * u + at.cosine * v + ((height - 1) << 16), at.cosine * u - at.sine * v + ((width - 1) << 16)};
}

// Channel c at that position, interpolated between four pixels in steps of 1/256 pixel; zero outside.
RT_HD inline uint8_t between_pixels(const uint8_t* image, int64_t height, int64_t width, int64_t channels, int64_t c,
                                    Turned at) {
  const int64_t y = (at.y + 256) >> 9, x = (at.x + 256) >> 9, row = y >> 8, column = x >> 8, fy = y & 255, fx = x & 255;
  const auto pixel = [&](int64_t r, int64_t k) -> int64_t {
    return r >= 0 && r < height && k >= 0 && k < width ? image[(r * width + k) * channels + c] : 0;
  };
  const int64_t above = pixel(row, column) * (256 - fx) + pixel(row, column + 1) * fx;
  const int64_t under = pixel(row + 1, column) * (256 - fx) + pixel(row + 1, column + 1) * fx;
  return uint8_t((above * (256 - fy) + under * fy + (1 << 15)) >> 16);
}

}  // namespace ringtape
