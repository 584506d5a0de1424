#pragma once
#include "core/random.h"
#include "core/shape.h"
#include "kernels/augment.h"
#include "kernels/kernel.h"

namespace ringtape {

// Operations on 8-bit images, with the strengths of torchvision's transforms of the same names, and their result on
// PIL images byte for byte (interpolation nearest, fill 0). A gray image is PIL's mode L.
enum class PolicyOp : int8_t {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,  // positions
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize  // levels
};
inline constexpr int kPolicyOps = 14, kPolicyBins = 31;  // strengths of each

// The pixel of the source at a pixel's (row, column): (y, x) + row (y_row, x_row) + column (y_column, x_column), in
// units of 2^-16, rounded down.
struct Affine {
  int32_t x, y, x_column, y_column, x_row, y_row;
};

// Parameters of one call: what each operation does with each strength [negative][strength], and the random stream.
struct PolicyParams {
  PolicyParams() = default;
  // Throws UsageError for fields out of the range above.
  PolicyParams(const ImagePolicy& what, int64_t height, int64_t width, uint64_t seed, uint64_t epoch, bool gathered);

  PolicyParams of_epoch(uint64_t epoch, bool gathered) const;

  Affine moves[5][2][kPolicyBins] = {};  // of shear_x to rotate
  float factor[2][kPolicyBins] = {};     // of brightness, color, contrast and sharpness
  int32_t kept_bits[kPolicyBins] = {};   // posterize: a mask
  int32_t threshold[kPolicyBins] = {};   // solarize: levels from here on are inverted
  int64_t ops = 0, first_bin = 0, bins = 1;
  uint64_t seed = 0, stream = 0;
  bool gathered = false;
};

// Throws ShapeError unless a policy can change images (H, W, C): 1 or 3 channels, H + W <= 16,384.
void check_policy(const Shape& image);

// y[b] is image index[b] (if gathered: image b, which is sample index[b] of the data set), changed by the operations
// that are drawn for it, with each byte replaced by its entry in the table. y (B, H, W, C), floating-point or u8,
// images u8 (N, H, W, C), index i64 (B) in [0, N), table (C, 256) of y's dtype; all contiguous, with shapes as in
// check_policy. What is drawn for a sample depends only on seed, epoch and its index; every device and instruction set
// gives the same bits.
RT_KERNEL(image_policy, void(View y, View images, View index, View table, PolicyParams params));

// An operation as drawn.
struct PolicyStep {
  PolicyOp op;
  bool negative;
  int bin;
};
RT_HD inline PolicyStep draw_policy_step(const PolicyParams& p, int64_t sample, int64_t number) {
  const Philox4 r = philox(p.seed, p.stream, uint64_t(sample) << 4 | uint64_t(number));
  return {PolicyOp(below(r.x[0], kPolicyOps)), r.x[2] >> 31 != 0, int(p.first_bin + below(r.x[1], p.bins))};
}

}  // namespace ringtape
