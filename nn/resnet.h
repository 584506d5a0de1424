#pragma once
#include <array>

#include "nn/batch_norm.h"
#include "nn/bottleneck.h"
#include "nn/classifier.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/sequential.h"

namespace ringtape::nn {

// Two 3x3 convolutions and a shortcut around them: relu(x + bn(conv(relu(bn(conv(x)))))). Where the shape changes, the
// shortcut is a 1x1 convolution with BatchNorm. He et al., "Deep residual learning for image recognition", 2015.
class BasicBlock : public Module {
 public:
  BasicBlock(int64_t in, int64_t out, int64_t stride);
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;
  std::string str() const override { return "BasicBlock"; }

 private:
  bool fuses(const Tensor& x) const;  // whether residual_block() is faster for this call

  int64_t stride_;
  Conv2d conv1_;
  BatchNorm bn1_;
  Conv2d conv2_;
  BatchNorm bn2_;
  std::unique_ptr<Conv2d> shortcut_;
  std::unique_ptr<BatchNorm> shortcut_bn_;
};

// The first layers. cifar: a 3x3 convolution, for images of about 32x32. imagenet: 7x7 with stride 2, then a 3x3
// max-pool with stride 2, for images of about 224x224.
enum class Stem : uint8_t { cifar, imagenet };

enum class Block : uint8_t { basic, bottleneck };

// (N, H, W, in) -> (N, classes). Parameters have torchvision's names; of basic blocks PyTorch's default initialisation,
// of bottlenecks torchvision's.
class ResNet : public Module, public Classifier {
 public:
  struct Options {
    std::array<int64_t, 4> blocks = {2, 2, 2, 2};  // per stage; {3, 4, 6, 3} is a ResNet-34, of bottlenecks a ResNet-50
    Block block = Block::basic;
    int64_t in = 3;
    int64_t classes = 10;  // 0: no last layer; the output is the features
    Stem stem = Stem::cifar;
    int64_t width = 64;          // of the first stage's 3x3 convolutions; each later stage doubles it
    int64_t stem_padding = 1;    // padding of the cifar stem; solo-learn has 2
    bool stem_relu = true;       // after the first convolution; lightly's benchmark lacks it
    bool checkpointing = false;  // of each block
  };
  explicit ResNet(const Options& options);
  static int64_t features_of(Block block, int64_t width) {
    return 8 * width * (block == Block::basic ? 1 : Bottleneck::kExpansion);
  }
  Tensor forward(const Tensor& x) override;   // logits
  Tensor features(const Tensor& x) override;  // (N, features_of(block, width))
  std::string last_layer() const override { return "fc"; }
  void visit(Visitor& v) override;
  std::string str() const override { return "ResNet"; }

 private:
  Stem stem_;
  Activation stem_activation_;
  Conv2d conv1_;
  BatchNorm bn1_;
  std::array<Sequential, 4> layers_;
  std::unique_ptr<Linear> fc_;
};

}  // namespace ringtape::nn
