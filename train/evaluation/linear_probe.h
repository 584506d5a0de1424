#pragma once
#include "train/evaluation/features.h"
#include "train/evaluation/metrics.h"

namespace ringtape {

// Evaluates features by a linear layer that is trained on them: SGD with momentum 0.9 and a cosine schedule to 0,
// starting from zeros. Each feature is first standardised to mean 0 and deviation 1 over the training samples, as in He
// et al., "Masked autoencoders are scalable vision learners", 2021, so that one learning rate fits features of any
// scale.
struct LinearProbe {
  int64_t epochs = 100;
  double lr = 0.1;
  int64_t batch_size = 256;
  uint64_t seed = 1;  // for the order of samples
};

// Trains the layer on `train` and returns its loss and accuracy on `test`, both on one device. Throws UsageError for no
// samples.
Tally linear_probe(const Features& train, const Features& test, int64_t classes, const LinearProbe& probe);

}  // namespace ringtape
