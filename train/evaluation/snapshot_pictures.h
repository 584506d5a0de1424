#pragma once
#include <string>
#include <utility>
#include <vector>

#include "train/evaluation/snapshot.h"

namespace ringtape {

// Images, u8 (N, H, W, C), N >= 1, side by side in so many columns, with a pixel between them: u8 (h, w, C).
Tensor tiled(const Tensor& images, int64_t columns);

// The parts of a snapshot as one picture each, with a name: "samples", "views", "neighbours", "filters".
std::vector<std::pair<std::string, Tensor>> pictures(const Snapshot& snapshot);

}  // namespace ringtape
