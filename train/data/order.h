#pragma once
#include <cstdint>
#include <vector>

#include "train/data/dataset.h"

namespace ringtape {

// The order of samples in an epoch, which depends on nothing but the arguments: all of them shuffled or, with a buffer
// of `buffer` > 0 samples, nearly as they lie in their files: these come one after the other in random order, and each
// sample that is due is drawn from the next `buffer` ones, as if they waited in a buffer. So files that are read from
// far away, or from a disk that turns, are read in order.
std::vector<int64_t> shuffled(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch, int64_t buffer = 0,
                              const EncodedImages* images = nullptr);

// As many draws, with replacement, as there are samples: each class that has some is equally likely, and so is each of
// its samples. labels: i64 (N), each in [0, classes), on the host. A sample that was drawn k times before in the epoch
// comes as sample + k * kDrawn, so that its augmentation is another one.
inline constexpr int64_t kDrawn = int64_t{1} << 32;
inline int64_t sample_of(int64_t drawn) { return drawn % kDrawn; }
std::vector<int64_t> balanced(const std::vector<int64_t>& samples, const Tensor& labels, int classes, uint64_t seed,
                              int64_t epoch);

}  // namespace ringtape
