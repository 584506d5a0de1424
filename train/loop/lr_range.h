#pragma once
#include <optional>
#include <vector>

#include "train/loop/training.h"

namespace ringtape {

// A test of learning rates: a few steps whose rate rises from `from` to `to` by the same factor each (Smith, "Cyclical
// learning rates for training neural networks", 2017). The rules are those of fastai and of Lightning's lr_find.
struct LrRange {
  double from = 1e-7, to = 10;
  int64_t steps = 100;
};
struct LrPoint {
  double lr, loss, smoothed;  // smoothed: the moving average with decay 0.98, without its bias to 0
};

// Takes these steps; it ends before a loss that is not finite, and after a smoothed one beyond four times the lowest.
// Changes the weights. Of a group of one rank.
std::vector<LrPoint> test_lrs(const Training& parts, const LrRange& range);

// The point where the smoothed loss falls most steeply by step, without the first ten and the last; none if there are
// not two others.
std::optional<size_t> steepest(const std::vector<LrPoint>& points);

}  // namespace ringtape
