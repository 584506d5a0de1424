#include "kernels/random_view.h"

#include <cmath>

namespace ringtape {
namespace {

// A probability in units of 2^-32.
uint64_t probability(const char* name, double p) {
  RT_CHECK_AS(UsageError, p >= 0 && p <= 1, name, ' ', p, " of a view: expected a probability, 0 to 1");
  return uint64_t(std::llround(p * 0x1p32));
}

int64_t fixed(double x, int bits) { return std::llround(std::ldexp(x, bits)); }

}  // namespace

RandomViewParams::RandomViewParams(const ViewAugmentation& what, uint64_t seed, uint64_t epoch, int view, bool gathered)
    : flip(probability("flip", what.flip)), jitter(probability("jitter", what.jitter)),
      gray(probability("gray", what.gray)), blur(probability("blur", what.blur)),
      solarize(probability("solarize", what.solarize)), seed(seed),
      stream(uint64_t(Stream::views) | uint64_t(view) << 8 | epoch << 16), gathered(gathered) {
  RT_CHECK_AS(UsageError, view >= 0 && view < 256, "view ", view, ": expected 0 to 255");
  RT_CHECK_AS(UsageError, what.crop_low > 0 && what.crop_low <= what.crop_high && what.crop_high <= 1, "crops of ",
              what.crop_low, " to ", what.crop_high,
              " of the area: expected shares between 0 and 1, the smaller first");
  area[0] = fixed(what.crop_low, kAreaBits), area[1] = fixed(what.crop_high, kAreaBits);
  const double strength[3] = {what.brightness, what.contrast, what.saturation};
  constexpr const char* kNames[3] = {"brightness", "contrast", "saturation"};
  for (int i = 0; i < 3; ++i) {
    RT_CHECK_AS(UsageError, strength[i] >= 0 && strength[i] <= 100, kNames[i], ' ', strength[i],
                " of a view: expected 0 to 100");
    factor[i][0] = fixed(std::max(0.0, 1 - strength[i]), kFactorBits);
    factor[i][1] = fixed(1 + strength[i], kFactorBits);
  }
  RT_CHECK_AS(UsageError, what.hue >= 0 && what.hue <= 0.5, "hue ", what.hue, " of a view: expected 0 to 0.5 turns");
  hue = fixed(what.hue, kFactorBits);
  RT_CHECK_AS(UsageError, what.blur_low >= 0.05 && what.blur_low <= what.blur_high && what.blur_high <= 20,
              "blur by a sigma of ", what.blur_low, " to ", what.blur_high,
              " pixels: expected 0.05 to 20, the smaller first");
  sigma[0] = fixed(what.blur_low, kSigmaBits), sigma[1] = fixed(what.blur_high, kSigmaBits);
}

void check_view(const ViewAugmentation& what, const Shape& image, const Shape& view) {
  RT_CHECK_AS(ShapeError,
              image.rank() == 3 && view.rank() == 3 && image.size() > 0 && view.size() > 0 && image[2] == view[2],
              "views ", view, " of images ", image, ": expected (H, W, C) and (H', W', C), none empty");
  RT_CHECK_AS(ShapeError, image[2] == 3 || (what.jitter == 0 && what.gray == 0), "views of images ", image,
              ": colours are changed in 3 channels only; set jitter and gray to 0 (--jitter 0 --gray 0)");
}

}  // namespace ringtape
