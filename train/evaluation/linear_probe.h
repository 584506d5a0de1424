#pragma once
#include "train/evaluation/features.h"
#include "train/evaluation/metrics.h"

namespace ringtape {

// How features are judged by what a linear layer can make of them: one is trained on them, by SGD
// with a momentum of 0.9 and a cosine to 0, beginning with zeros. Each feature is first brought to
// mean 0 and deviation 1 over the training samples, as He et al., "Masked autoencoders are scalable
// vision learners", 2021, so that one rate fits features of any size.
struct LinearProbe {
  int64_t epochs = 100;
  double lr = 0.1;
  int64_t batch_size = 256;
  uint64_t seed = 1;  // of the order of samples
};

// Loss and accuracy on the test features of the layer trained on the others, both on one
// device. Throws UsageError for no samples.
Tally linear_probe(const Features& train, const Features& test, int64_t classes, const LinearProbe& probe);

}  // namespace ringtape
