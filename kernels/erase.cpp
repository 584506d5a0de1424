#include "kernels/erase.h"

#include <cmath>

#include "core/check.h"

namespace ringtape {

EraseParams::EraseParams(const Erasing& what, uint64_t seed, uint64_t epoch)
    : cutout({.cutout = what.cutout}, seed, epoch, true), seed(seed), stream(uint64_t(Stream::erasing) | epoch << 8) {
  RT_CHECK_AS(UsageError, what.probability >= 0 && what.probability <= 1, "erasing ", what.probability,
              ": expected a probability, 0 to 1");
  probability = uint64_t(std::llround(what.probability * 0x1p32));
}

}  // namespace ringtape
