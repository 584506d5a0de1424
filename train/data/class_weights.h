#pragma once
#include <string>
#include <vector>

#include "train/data/dataset.h"

namespace ringtape {

// The numbers of "0.5,2,1"; empty for "none" and "balanced". Throws UsageError for other text, for numbers below 0 and
// where all are 0.
std::vector<double> listed_class_weights(const std::string& text);

// The factor of each class in the loss of a training on these samples; empty: none has one. "balanced" gives
// n / (classes * count), as scikit-learn's compute_class_weight, where only classes with samples count; the others get
// 0. Throws UsageError for a list of another length, and where the samples' classes all have 0.
std::vector<double> class_weights(const std::string& text, const Dataset& data, const std::vector<int64_t>& samples);

}  // namespace ringtape
