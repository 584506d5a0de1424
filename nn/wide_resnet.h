#pragma once
#include <array>

#include "nn/batch_norm.h"
#include "nn/classifier.h"
#include "nn/conv2d.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/sequential.h"

namespace ringtape::nn {

// Two 3x3 convolutions, each after BatchNorm and ReLU, and a shortcut around them: x + conv(drop(relu(bn(conv(h))))),
// with h = relu(bn(x)). Where the number of channels changes, the shortcut is a 1x1 convolution of h.
class WideBlock : public Module {
 public:
  WideBlock(int64_t in, int64_t out, int64_t stride, double dropout);
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;
  std::string str() const override { return "WideBlock"; }

 private:
  BatchNorm bn1_;
  Conv2d conv1_;
  BatchNorm bn2_;
  Dropout drop_;
  Conv2d conv2_;
  std::unique_ptr<Conv2d> shortcut_;
};

// Wide residual networks for images of about 32x32: (N, H, W, in) -> (N, classes). Zagoruyko and Komodakis, "Wide
// residual networks", 2016. Names, order and initialisation of the parameters are those of the port to PyTorch whose
// weights are common, github.com/xternalz/WideResNet-pytorch.
class WideResNet : public Module, public Classifier {
 public:
  struct Options {
    int64_t depth = 28;  // convolutions in sequence, and the last layer: 6 n + 4, with n blocks in each of 3 stages
    int64_t widen = 10;  // times 16 channels of the first stage; each later stage doubles them
    double dropout = 0;  // between the convolutions of a block
    int64_t in = 3;
    int64_t classes = 10;  // 0: no last layer; the output is the features
  };
  explicit WideResNet(const Options& options);  // throws UsageError for another depth
  Tensor forward(const Tensor& x) override;     // logits
  Tensor features(const Tensor& x) override;    // (N, 64 widen)
  std::string last_layer() const override { return "fc"; }
  void visit(Visitor& v) override;
  std::string str() const override { return "WideResNet"; }

 private:
  Conv2d conv1_;
  std::array<Sequential, 3> blocks_;
  BatchNorm bn1_;
  std::unique_ptr<Linear> fc_;
};

}  // namespace ringtape::nn
