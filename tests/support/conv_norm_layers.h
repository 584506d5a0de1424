// Convolutions behind a BatchNorm, for tests of the fused kernels.
#pragma once
#include <ostream>

#include "core/shape.h"
#include "kernels/window.h"

namespace ringtape {

struct Layer {
  const char* name;
  int64_t n, h, w, c, k, r, stride;
  Shape x() const { return {n, h, w, c}; }
  Shape weights() const { return {k, r, r, c}; }
  Window window() const { return square_window(stride, r / 2); }
  Shape y() const { return {n, window().rows(h, r), window().columns(w, r), k}; }
};
inline void PrintTo(const Layer& c, std::ostream* out) { *out << c.name; }

// The channels of a ResNet-18's blocks.
inline const Layer kCases[] = {{"64", 3, 9, 7, 64, 64, 3, 1},
                               {"64_whole_tiles", 2, 8, 16, 64, 64, 3, 1},
                               {"64_128", 2, 9, 8, 64, 128, 3, 2},
                               {"64_128_shortcut", 5, 7, 7, 64, 128, 1, 2},
                               {"128", 2, 8, 8, 128, 128, 3, 1},
                               {"128_256", 2, 7, 8, 128, 256, 3, 2},
                               {"128_256_shortcut", 3, 8, 8, 128, 256, 1, 2},
                               {"256", 2, 4, 4, 256, 256, 3, 1},
                               {"256_512", 2, 4, 5, 256, 512, 3, 2},
                               {"256_512_shortcut", 2, 4, 4, 256, 512, 1, 2},
                               {"512", 2, 2, 2, 512, 512, 3, 1},
                               {"one_place", 1, 1, 1, 32, 32, 1, 1},
                               {"one_place_strided", 3, 1, 1, 32, 32, 3, 2},
                               {"odd_channels_in_tiles", 2, 5, 3, 96, 160, 3, 1},
                               {"none", 0, 4, 4, 32, 32, 3, 1}};

}  // namespace ringtape
