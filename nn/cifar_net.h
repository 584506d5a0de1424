#pragma once
#include <array>

#include "nn/batch_norm.h"
#include "nn/classifier.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/pool.h"

namespace ringtape::nn {

// (N, H, W, in) -> (N, H / 2, W / 2, out): gelu(norm(conv(gelu(norm(pool(conv(x))))))), with 3x3 convolutions whose
// first filters pass channels on, and norms without a trained scale.
class CifarBlock : public Module {
 public:
  CifarBlock(int64_t in, int64_t out);
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;
  std::string str() const override { return "CifarBlock"; }

 private:
  Conv2d conv1_;
  MaxPool2d pool_{2};
  BatchNorm norm1_;
  Conv2d conv2_;
  BatchNorm norm2_;
};

// The network with which Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU", 2024, learns CIFAR-10 in about ten
// epochs: a frozen 2x2 convolution that whitens, three blocks, a maximum over what is left of the image, and a linear
// layer without bias. Images (N, H, W, in), at least 9x9 -> (N, classes).
class CifarNet : public Module, public Classifier {
 public:
  struct Options {
    int64_t width = 64;       // channels of the first block; the others have four times as many
    int64_t bias_epochs = 3;  // in which the bias of the first layer is trained
    int64_t in = 3;
    int64_t classes = 10;  // 0: no last layer; the output is the features
  };
  explicit CifarNet(const Options& options);
  // Sets the filters of the first layer from images (N, H, W, in) such as will train it (nn/whitening.h); they are
  // random before.
  void whiten(const Tensor& images);
  Tensor forward(const Tensor& x) override;
  Tensor features(const Tensor& x) override;  // (N, 4 width)
  std::string last_layer() const override { return "head"; }
  int64_t form() const override { return epoch() < options_.bias_epochs ? 0 : 1; }
  void visit(Visitor& v) override;
  std::string str() const override { return "CifarNet"; }

 private:
  const Options options_;
  Conv2d whiten_;
  std::array<CifarBlock, 3> blocks_;
  std::unique_ptr<Linear> head_;
};

}  // namespace ringtape::nn
