#pragma once
#include "nn/batch_norm.h"
#include "nn/classifier.h"
#include "nn/conv2d.h"
#include "nn/dropout.h"
#include "nn/linear.h"

namespace ringtape::nn {

// The network of DTU's machine-learning-operations course (fashion_trainer.py): two convolutions with BatchNorm, ReLU
// and max-pool, three linear layers with only dropout between them. Images (N, H, W, in), at least 8x8 -> (N, classes).
// Parameters have the course's names and layouts.
class FashionCnn : public Module, public Classifier {
 public:
  FashionCnn(int64_t height, int64_t width, int64_t in, int64_t classes);
  Tensor forward(const Tensor& x) override;
  Tensor features(const Tensor& x) override;  // (N, 120)
  std::string last_layer() const override { return "fc3"; }
  void visit(Visitor& v) override;
  std::string str() const override { return "FashionCnn"; }

 private:
  Conv2d conv1_;
  BatchNorm bn1_;
  Conv2d conv2_;
  BatchNorm bn2_;
  Linear fc1_;
  Dropout drop_;
  Linear fc2_, fc3_;
};

}  // namespace ringtape::nn
