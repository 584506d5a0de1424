#pragma once
#include "nn/ssl/method.h"

namespace ringtape::nn {

// A second encoder of the same make that follows the first as an average of its weights: what moco and byol compare with. It is not
// trained, normalises by its own batches and keeps running statistics of its own.
class Teacher {
 public:
  // Begins with the student's weights. `momentum`: what it keeps of its own at a step; it goes to `final_momentum` along a cosine (Grill et
  // al., "Bootstrap your own latent", 2020), or stays where that is negative.
  Teacher(const Encoder& student, Encoder own, double momentum, double final_momentum);

  Tensor operator()(const Tensor& x) const;  // no gradient
  double momentum_at(const Moment& moment) const;
  // weights = m weights + (1 - m) student's, of parameters alone; one pass over memory where theirs lie one after the other.
  void follow(const Encoder& student, const Moment& moment);
  void visit(Visitor& v);  // as buffers

 private:
  Encoder own_;
  double momentum_, final_momentum_;
};

}  // namespace ringtape::nn
