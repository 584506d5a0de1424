#pragma once
#include <memory>

#include "nn/batch_norm.h"
#include "nn/conv2d.h"

namespace ringtape::nn {

// A 3x3 convolution between two 1x1 ones, each with BatchNorm, and a shortcut around them: (N, H, W, in) -> (N,
// H / stride, W / stride, kExpansion width). Where the shape changes, the shortcut is a 1x1 convolution with BatchNorm.
// The 3x3 convolution has the stride, as in torchvision ("V1.5"), whose names and initialisation these are. He et al.,
// "Deep residual learning for image recognition", 2015.
class Bottleneck : public Module {
 public:
  static constexpr int64_t kExpansion = 4;
  Bottleneck(int64_t in, int64_t width, int64_t stride);
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;
  std::string str() const override { return "Bottleneck"; }

 private:
  Conv2d conv1_;
  BatchNorm bn1_;
  Conv2d conv2_;
  BatchNorm bn2_;
  Conv2d conv3_;
  BatchNorm bn3_;
  std::unique_ptr<Conv2d> shortcut_;
  std::unique_ptr<BatchNorm> shortcut_bn_;
};

}  // namespace ringtape::nn
