#pragma once
#include "core/fields.h"

namespace ringtape {

// How features are judged without training anything: a sample is what the most similar ones of a
// bank are. With 200 neighbours and temperature 0.1 as Wu et al., "Unsupervised feature learning
// via non-parametric instance discrimination", 2018.
struct Knn {
  int64_t k = 200;
  double temperature = 0.1;
};

// When and with what the features are judged while they are learnt.
struct EvaluationOptions {
  Knn knn = {};
  int64_t every = 1;          // epochs; 0: only at the end
  int64_t bank = 0;           // training images; 0: all
  bool online_probe = false;  // also by a linear layer that learns the labels meanwhile
};
void visit(Fields& f, EvaluationOptions& o);

}  // namespace ringtape
