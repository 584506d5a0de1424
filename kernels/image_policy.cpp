#include "kernels/image_policy.h"

#include <cmath>

#include "core/check.h"

namespace ringtape {
namespace {

// Element i of torch.linspace(begin, end, 31), as PyTorch computes it with AVX2: f32, from both ends, with fused
// operations. The double products are exact.
float in_line(float begin, float end, int i) {
  const auto step = double((end - begin) / float(kPolicyBins - 1));
  return i < kPolicyBins / 2 ? float(double(begin) + step * i) : float(double(end) - step * (kPolicyBins - 1 - i));
}

int32_t fixed16(double x) { return int32_t(std::floor(x * 65536 + 0.5)); }

// PIL's matrix (x = m[0] column + m[1] row + m[2], y likewise), taken at the middle of a pixel.
Affine fixed_affine(const double (&m)[6]) {
  return {.x = fixed16(m[2] + m[0] * 0.5 + m[1] * 0.5),
          .y = fixed16(m[5] + m[3] * 0.5 + m[4] * 0.5),
          .x_column = fixed16(m[0]),
          .y_column = fixed16(m[3]),
          .x_row = fixed16(m[1]),
          .y_row = fixed16(m[4])};
}

// Counter-clockwise about the centre.
Affine turned_by(double degrees, double height, double width) {
  constexpr double kRadian = 3.14159265358979323846 / 180;
  const double angle = -std::fmod(degrees + 360, 360) * kRadian;
  const auto digits = [](double x) { return std::round(x * 1e15) / 1e15; };  // as PIL, so that right angles are exact
  double m[6] = {digits(std::cos(angle)),  digits(std::sin(angle)), 0,
                 digits(-std::sin(angle)), digits(std::cos(angle)), 0};
  m[2] = m[0] * (-width / 2) + m[1] * (-height / 2) + width / 2;
  m[5] = m[3] * (-width / 2) + m[4] * (-height / 2) + height / 2;
  return fixed_affine(m);
}

}  // namespace

PolicyParams::PolicyParams(const ImagePolicy& what, int64_t height, int64_t width, uint64_t seed, uint64_t epoch,
                           bool gathered)
    : seed(seed) {
  *this = of_epoch(epoch, gathered);
  RT_CHECK_AS(UsageError, what.ops >= 1 && what.ops <= 16, "a policy of ", what.ops, " operations: expected 1 to 16");
  RT_CHECK_AS(UsageError, what.magnitude >= 0 && what.magnitude < kPolicyBins, "a policy of strength ", what.magnitude,
              ": expected 0 to 30");
  const bool wide = what.kind == PolicyKind::trivial_augment;
  ops = what.kind == PolicyKind::none ? 0 : wide ? 1 : what.ops;
  first_bin = wide ? 0 : what.magnitude, bins = wide ? kPolicyBins : 1;
  const auto shift = [wide](int64_t side) { return wide ? 32.0f : float(150.0 / 331.0 * double(side)); };
  for (int i = 0; i < kPolicyBins; ++i) {
    kept_bits[i] = -(1 << int(std::nearbyint(float(i) / (30.0f / (wide ? 6.0f : 4.0f)))));
    threshold[i] = int32_t(std::ceil(in_line(255, 0, i)));
    for (int negative = 0; negative < 2; ++negative) {
      const double sign = negative ? -1 : 1, shear = sign * double(in_line(0, wide ? 0.99f : 0.3f, i));
      const double x = std::trunc(sign * double(in_line(0, shift(width), i)));
      const double y = std::trunc(sign * double(in_line(0, shift(height), i)));
      moves[0][negative][i] = fixed_affine({1, shear, 0, 0, 1, 0});
      moves[1][negative][i] = fixed_affine({1, 0, 0, shear, 1, 0});
      moves[2][negative][i] = fixed_affine({1, 0, -x, 0, 1, 0});
      moves[3][negative][i] = fixed_affine({1, 0, 0, 0, 1, -y});
      moves[4][negative][i] = turned_by(sign * double(in_line(0, wide ? 135 : 30, i)), double(height), double(width));
      factor[negative][i] = float(1 + sign * double(in_line(0, wide ? 0.99f : 0.9f, i)));
    }
  }
}

PolicyParams PolicyParams::of_epoch(uint64_t epoch, bool are_gathered) const {
  PolicyParams out = *this;
  out.stream = uint64_t(Stream::policy) | epoch << 8, out.gathered = are_gathered;
  return out;
}

void check_policy(const Shape& image) {
  RT_CHECK_AS(ShapeError, image.rank() == 3 && image.size() > 0 && image[0] + image[1] <= 16384, "a policy for images ",
              image, ": expected (H, W, C), none empty and H + W at most 16384");
  RT_CHECK_AS(ShapeError, image[2] == 1 || image[2] == 3, "a policy for images ", image,
              ": expected 1 or 3 channels; leave --policy out");
}

}  // namespace ringtape
