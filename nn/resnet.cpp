#include "nn/resnet.h"

namespace ringtape::nn {

static Init init_of(Block block) { return block == Block::basic ? Init::uniform_fan_in : Init::normal_fan_out; }

BasicBlock::BasicBlock(int64_t in, int64_t out, int64_t stride)
    : stride_(stride), conv1_(in, out, 3, without_bias(stride, 1)), bn1_(out), conv2_(out, out, 3, without_bias(1, 1)),
      bn2_(out) {
  if (stride == 1 && in == out) return;
  shortcut_ = std::make_unique<Conv2d>(in, out, 1, without_bias(stride, 0));
  shortcut_bn_ = std::make_unique<BatchNorm>(out);
}

bool BasicBlock::fuses(const Tensor& x) const {
  return bn1_.by_own_batch() && bn2_.by_own_batch() && (!shortcut_ || shortcut_bn_->by_own_batch()) &&
         fuses_residual_block(x, conv1_.weight, stride_);
}

Tensor BasicBlock::forward(const Tensor& x) {
  if (fuses(x))
    return residual_block(x, bn1_.after(conv1_.weight), bn2_.after(conv2_.weight),
                          shortcut_ ? shortcut_bn_->after(shortcut_->weight) : ConvNorm{}, stride_, bn1_.options());
  const Tensor h = bn1_(conv1_(x), Activation::relu);
  const Tensor shortcut = shortcut_ ? (*shortcut_bn_)((*shortcut_)(x)) : x;
  return bn2_(conv2_(h), Activation::relu, shortcut);
}

void BasicBlock::visit(Visitor& v) {
  v.child("conv1", conv1_);
  v.child("bn1", bn1_);
  v.child("conv2", conv2_);
  v.child("bn2", bn2_);
  if (!shortcut_) return;
  v.child("downsample.0", *shortcut_);
  v.child("downsample.1", *shortcut_bn_);
}

ResNet::ResNet(const Options& o)
    : stem_(o.stem), stem_activation_(o.stem_relu ? Activation::relu : Activation::none),
      conv1_(o.in, o.width, o.stem == Stem::cifar ? 3 : 7,
             o.stem == Stem::cifar ? without_bias(1, o.stem_padding, init_of(o.block))
                                   : without_bias(2, 3, init_of(o.block))),
      bn1_(o.width) {
  int64_t in = o.width;
  for (size_t stage = 0; stage < layers_.size(); ++stage) {
    layers_[stage].set_checkpointing(o.checkpointing);
    for (int64_t block = 0; block < o.blocks[stage]; ++block) {
      const int64_t width = o.width << stage, stride = stage > 0 && block == 0 ? 2 : 1;
      if (o.block == Block::basic) layers_[stage].add<BasicBlock>(in, width, stride);
      else layers_[stage].add<Bottleneck>(in, width, stride);
      in = o.block == Block::basic ? width : Bottleneck::kExpansion * width;
    }
  }
  if (o.classes > 0) fc_ = std::make_unique<Linear>(in, o.classes);
}

Tensor ResNet::features(const Tensor& x) {
  Tensor y = bn1_(conv1_(x), stem_activation_);
  if (stem_ == Stem::imagenet) y = max_pool2d(y, 3, 3, square_window(2, 1));
  for (Sequential& layer : layers_) y = layer(y);
  return mean(y, {1, 2});
}

Tensor ResNet::forward(const Tensor& x) { return fc_ ? (*fc_)(features(x)) : features(x); }

void ResNet::visit(Visitor& v) {
  v.child("conv1", conv1_);
  v.child("bn1", bn1_);
  for (size_t i = 0; i < layers_.size(); ++i) v.child(concat("layer", i + 1), layers_[i]);
  if (fc_) v.child("fc", *fc_);
}

}  // namespace ringtape::nn
