#pragma once
#include <string>

#include "core/fields.h"

namespace ringtape {

// Evaluates features without training: a sample gets the label of the most similar samples of a bank. The defaults, 200
// neighbours and temperature 0.1, are those of Wu et al., "Unsupervised feature learning via non-parametric instance
// discrimination", 2018.
struct Knn {
  int64_t k = 200;
  double temperature = 0.1;
};

// When and how features are evaluated during self-supervised training.
struct EvaluationOptions {
  Knn knn = {};
  int64_t every = 1;                // epochs; 0: only at the end
  int64_t bank = 0;                 // training images; 0: all
  std::string data = {}, dir = {};  // another data set with labels, and its folder; empty: the one that trains
  bool online_probe = false;        // also by a linear layer that learns the labels during training
};
void visit(Fields& f, EvaluationOptions& o);

}  // namespace ringtape
