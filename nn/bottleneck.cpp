#include "nn/bottleneck.h"

namespace ringtape::nn {

Bottleneck::Bottleneck(int64_t in, int64_t width, int64_t stride)
    : conv1_(in, width, 1, without_bias(1, 0, Init::normal_fan_out)), bn1_(width),
      conv2_(width, width, 3, without_bias(stride, 1, Init::normal_fan_out)), bn2_(width),
      conv3_(width, kExpansion * width, 1, without_bias(1, 0, Init::normal_fan_out)), bn3_(kExpansion * width) {
  if (stride == 1 && in == kExpansion * width) return;
  shortcut_ = std::make_unique<Conv2d>(in, kExpansion * width, 1, without_bias(stride, 0, Init::normal_fan_out));
  shortcut_bn_ = std::make_unique<BatchNorm>(kExpansion * width);
}

Tensor Bottleneck::forward(const Tensor& x) {
  Tensor y = bn1_(conv1_(x), Activation::relu);
  y = bn2_(conv2_(y), Activation::relu);
  const Tensor shortcut = shortcut_ ? (*shortcut_bn_)((*shortcut_)(x)) : x;
  return bn3_(conv3_(y), Activation::relu, shortcut);
}

void Bottleneck::visit(Visitor& v) {
  v.child("conv1", conv1_);
  v.child("bn1", bn1_);
  v.child("conv2", conv2_);
  v.child("bn2", bn2_);
  v.child("conv3", conv3_);
  v.child("bn3", bn3_);
  if (!shortcut_) return;
  v.child("downsample.0", *shortcut_);
  v.child("downsample.1", *shortcut_bn_);
}

}  // namespace ringtape::nn
