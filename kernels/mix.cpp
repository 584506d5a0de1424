#include "kernels/mix.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace ringtape {
namespace {

class Draws {
 public:
  Draws(uint64_t seed, uint64_t epoch, int64_t batch)
      : seed_(seed), stream_(uint64_t(Stream::mixing) | epoch << 8), counter_(uint64_t(batch) << 24) {}
  double uniform() { return (double(next()) + 0.5) * 0x1p-32; }
  int64_t below(int64_t n) { return ringtape::below(next(), n); }

 private:
  uint32_t next() {
    if (at_ == 4) block_ = philox(seed_, stream_, counter_++), at_ = 0;
    return block_.x[at_++];
  }
  uint64_t seed_, stream_, counter_;
  Philox4 block_{};
  int at_ = 4;
};

// The logarithm of a number from Gamma(alpha) (Marsaglia and Tsang, 2000), so that small alphas do not underflow.
double log_gamma(Draws& draws, double alpha) {
  if (alpha < 1) return log_gamma(draws, alpha + 1) + std::log(draws.uniform()) / alpha;
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double radius = std::sqrt(-2 * std::log(draws.uniform()));
    const double normal = radius * std::cos(2 * 3.14159265358979323846 * draws.uniform());
    const double root = 1 + c * normal, v = root * root * root, u = draws.uniform();
    if (root > 0 && std::log(u) < 0.5 * normal * normal + d * (1 - v + std::log(v))) return std::log(d * v);
  }
}

double rounded_share(double share) { return std::nearbyint(share * 0x1p16) * 0x1p-16; }

double draw_share(Draws& draws, double alpha) {
  const double own = log_gamma(draws, alpha), other = log_gamma(draws, alpha);
  return rounded_share(1 / (1 + std::exp(other - own)));
}

}  // namespace

Mixture draw_mixture(const Mixing& what, int64_t height, int64_t width, uint64_t seed, uint64_t epoch, int64_t batch) {
  for (const double alpha : {what.mixup, what.cutmix})
    RT_CHECK_AS(UsageError, alpha >= 0 && alpha <= 1000, "a mixture with an alpha of ", alpha, ": expected 0 to 1000");
  if (!what.any()) return {};
  Draws draws(seed, epoch, batch);
  const bool cuts = what.cutmix > 0 && (what.mixup == 0 || draws.below(2) == 1);
  const double share = draw_share(draws, cuts ? what.cutmix : what.mixup);
  if (!cuts) return {.share = share, .label_share = share};
  const double side = 0.5 * std::sqrt(1 - share);
  const int64_t column = draws.below(width), row = draws.below(height);
  const auto half_width = int64_t(side * double(width)), half_height = int64_t(side * double(height));
  const int64_t left = std::max<int64_t>(column - half_width, 0), right = std::min(column + half_width, width);
  const int64_t top = std::max<int64_t>(row - half_height, 0), bottom = std::min(row + half_height, height);
  const Rectangle part{top, left, bottom - top, right - left};
  return {.part = part, .label_share = rounded_share(1 - double(part.height * part.width) / double(height * width))};
}

}  // namespace ringtape
